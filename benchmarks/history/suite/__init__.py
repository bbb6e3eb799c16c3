"""What is timed of every release; see the release checklist in CONTRIBUTING.md."""
