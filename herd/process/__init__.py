"""What every service process does around its work: settings from the command line, signals, memory and CPU facts."""
