package interrupt

import "os"

// closes is empty: a page has no terminal.
var closes []os.Signal
