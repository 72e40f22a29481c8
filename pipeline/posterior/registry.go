package posterior

// registry lists the methods in the order of the letter's table. Methods are added here and nowhere else.
var registry = []Method{}
