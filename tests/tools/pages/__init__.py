"""Pages in a real browser: the browser, what is measured in it, and the script that takes the pictures."""
