"""What a second broker saves when events get lost and brokers die, and what each filter costs."""
