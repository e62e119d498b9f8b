"""The conversation of learners with replay: inserted unrolls and samples."""
