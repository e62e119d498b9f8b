"""The agent's network: torsos, recurrent core, language, heads; and the frame stacks that feed it. Torch only."""
