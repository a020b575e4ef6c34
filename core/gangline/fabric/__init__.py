"""The network a fleet hangs on, as files and hosts tell of it."""
