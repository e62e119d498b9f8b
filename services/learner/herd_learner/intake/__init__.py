"""What actors send: the I/O thread, the decisions about each message, the ledger and the queue of unrolls."""
