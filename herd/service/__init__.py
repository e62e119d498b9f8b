"""What every service process does around its work: settings, signals, memory and CPU facts, files that are whole or not there."""
