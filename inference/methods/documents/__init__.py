"""Parts that the hand-written inference of all topic models shares."""
