package service

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/internal/browser"
)

var shotsFlag = flag.String("shots", "",
	"folder to which TestPageInABrowser saves screenshots of the status page")

// TestPageInABrowser: the status page of a round with clients in, missing and refused says so in a
// real browser, which asks for nothing else, and fits a telephone. Look at it with go test
// ./pipeline/federate/service -run TestPageInABrowser -shots FOLDER.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := browser.New(t)
	f := newFixture(t, "quorum: 2\ntitle: A title of a round that takes more than one line on a "+
		"telephone, as titles do\n")
	address := must.Get(url.Parse(f.http.URL))(t)
	address.User = url.UserPassword("anybody", "for readers") // as a person types it
	see := func(stage string, wanted ...string) {
		for _, width := range []int{1920, 1280, 390} {
			for _, dark := range []bool{false, true} {
				b.Open(address.String(), width, dark)
				var faults []string
				b.Eval(browser.LayoutFaults, &faults)
				faults = append(faults, b.Axe()...)
				var hidden int // width of tables that a reader has to push to see
				b.Eval(
					`Math.max(0, ...[...document.querySelectorAll('.wide')].map(e => e.scrollWidth - e.clientWidth))`, &hidden)
				if hidden > 0 {
					faults = append(faults, fmt.Sprintf("%d pixels of a table lie outside "+
						"the window", hidden))
				}
				for _, e := range b.Events {
					switch e.Method {
					case "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed":
						faults = append(faults, e.Method+" "+string(e.Params))
					}
				}
				if len(faults) > 0 {
					t.Errorf("%s, %d wide, dark %v: %s", stage, width, dark, strings.Join(faults, "\n"))
				}
				if *shotsFlag != "" {
					must.Do(t, os.MkdirAll(*shotsFlag, 0o755))
					b.Shoot(filepath.Join(*shotsFlag, fmt.Sprintf("%s-%d-%v", stage, width, dark)))
				}
			}
		}
		var text string
		b.Eval("document.body.innerText", &text)
		text = strings.Join(strings.Fields(text), " ") // boxes side by side are lines of their own
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q:\n%s", stage, want, text)
			}
		}
	}
	see("empty", "0 of 4 clients are in", "None yet.", "Nobody yet.", "d/e f")
	f.in("a", "d/e f")
	f.put("b", f.made("b", 1, func(u *federate.Upload) { u.Round = 2 }))
	must.Do(t, f.srv.Pool(t.Context()))
	see("pooled", "2 of 4 clients are in", "Version 1, made 2030-01-01", "round is 2", "0.50",
		"accuracy", "0.75")
	var bad string
	b.Eval(`document.querySelectorAll('tr.in').length + ' ' + document.querySelectorAll('tr.refused').length`, &bad)
	if bad != "2 1" {
		t.Errorf("rows of clients in and refused: %s; want 2 1", bad)
	}
}
