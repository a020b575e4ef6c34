"""Who really provides nodes and runs a supervisor on each: one module per engine behind one protocol."""
