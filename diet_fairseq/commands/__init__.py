"""What a shell can call: one file a command."""
