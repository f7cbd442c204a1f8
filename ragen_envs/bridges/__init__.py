"""The environments of this package in others, and those of others here; each is imported when it is first needed."""
