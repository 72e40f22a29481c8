// Package design is how pages look: colours, type and tables of reports, of the status page and of
// the pages of the browser.
package design

import _ "embed" // the style sheet

// CSS is the style sheet that every page begins with.
//
//go:embed design.css
var CSS string
