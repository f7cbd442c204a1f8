"""The store without a network: which page a shopper sees, what an action does, pages as text and HTML. Purely."""
