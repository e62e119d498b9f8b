"""Everything that a run file chooses by ``kind``, each in a folder of its own."""
