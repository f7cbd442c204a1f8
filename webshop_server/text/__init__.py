"""Text as the search sees it, exactly as Lucene's. Nothing here knows what a product is; all packages may import it."""
