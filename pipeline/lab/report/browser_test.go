package report

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/internal/browser"
)

var (
	pagesFlag = flag.String("pages", "",
		"run directories, separated by commas, whose pages TestPageInABrowser looks at too")
	shotsFlag = flag.String("shots", "",
		"folder to which TestPageInABrowser saves screenshots of every page")
)

// TestPageInABrowser: pages load without an error in the console and without the network, and
// nothing in them is cut off, overlaps or is too small, at the widths of a desk and of a telephone,
// in the light and in the dark. Look at them with go test ./pipeline/report -run TestPageInABrowser
// -pages RUN,RUN -shots FOLDER.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := browser.New(t)
	made := filepath.Join(t.TempDir(), "made-up")
	madeUp(t, made)
	pages := []string{made}
	if *pagesFlag != "" {
		pages = append(pages, strings.Split(*pagesFlag, ",")...)
	}
	for _, page := range pages {
		for _, width := range []int{1920, 1280, 390} {
			for _, dark := range []bool{false, true} {
				name := fmt.Sprintf("%s-%d", filepath.Base(page), width)
				if dark {
					name += "-dark"
				}
				t.Run(name, func(t *testing.T) {
					b.T = t
					file := must.Get(filepath.Abs(filepath.Join(page, PageFile)))(t)
					b.Open((&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String(), width,
						dark)
					var faults []string
					b.Eval(browser.LayoutFaults, &faults)
					for i, f := range faults {
						if i == 30 {
							t.Errorf("and %d more", len(faults)-i)
							break
						}
						t.Error(f)
					}
					for _, f := range b.Axe() {
						t.Error(f)
					}
					// A box above a table leaves its column out, and puts it back.
					var shown [3]bool
					b.Eval(`(() => { const box = document.querySelector('.pick .c2'), 
						cell = document.querySelector('.pick + .scroll tbody tr:not(.group) td:nth-child(2)'), is = () => cell.offsetWidth > 0;
						const out = [is()]; box.click(); out.push(is()); box.click(); out.push(is()); return out; })()`, &shown)
					if shown != [3]bool{true, false, true} {
						t.Errorf("the second column is shown %v, left out and put back; want "+
							"true, false, true", shown)
					}
					var paper string
					b.Eval(`getComputedStyle(document.body).backgroundColor`, &paper)
					if want := map[bool]string{false: "rgb(255, 255, 255)",
						true: "rgb(23, 23, 26)"}[dark]; paper != want {
						t.Errorf("the page is %s; want %s", paper, want)
					}
					for _, e := range b.Events {
						switch e.Method {
						case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled",
							"Network.loadingFailed":
							t.Errorf("%s: %s", e.Method, e.Params)
						case "Network.requestWillBeSent":
							var r struct {
								Request struct {
									URL string `json:"url"`
								} `json:"request"`
							}
							must.Do(t, json.Unmarshal(e.Params, &r))
							if !strings.HasPrefix(r.Request.URL, "file:") &&
								!strings.HasPrefix(r.Request.URL, "data:") {
								t.Errorf("the page asks for %s", r.Request.URL)
							}
						}
					}
					if *shotsFlag != "" {
						must.Do(t, os.MkdirAll(*shotsFlag, 0o755))
						b.Shoot(filepath.Join(*shotsFlag, name))
					}
				})
			}
		}
	}
}
