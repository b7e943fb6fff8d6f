"""Images of other formats: headers, reading, geometry, and the way to L3."""
