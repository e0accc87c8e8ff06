"""What reports are made of: small counts that can be merged."""
