"""What the four sites say: invented tools, in the structure of the real pages."""
