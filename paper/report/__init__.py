"""The report: pages of results as Markdown, HTML and in a terminal."""
