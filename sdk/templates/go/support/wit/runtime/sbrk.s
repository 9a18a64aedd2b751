// Lets Go take a function without a body, which is that of another package.
