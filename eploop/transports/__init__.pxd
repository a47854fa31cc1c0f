# Floor 5: descriptors that carry a protocol's bytes.
