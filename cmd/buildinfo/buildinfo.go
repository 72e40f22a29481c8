// Package buildinfo says which version of the source a program was built from.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Next is the version of the sources: of the release that is next, or that a tag names.
const Next = "0.1.0"

// Info identifies a build.
type Info struct {
	Version  string `json:"version"`            // of the tag, as 0.1.0; else [Next]
	Revision string `json:"revision,omitempty"` // commit of the source
	Time     string `json:"time,omitempty"`     // of that commit (RFC 3339)
	Modified bool   `json:"modified"`           // the source had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read returns the facts that the Go tool recorded in this program. The tool takes the version from
// the tag of the commit, or from the module's version where a program is installed by it.
func Read() Info {
	i := Info{Version: Next, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if bi, ok := debug.ReadBuildInfo(); ok {
		i.Version = Version(bi)
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Revision = s.Value
			case "vcs.time":
				i.Time = s.Value
			case "vcs.modified":
				i.Modified = s.Value == "true"
			}
		}
	}
	return i
}

// Version returns the version of a program without the tag's v: [Next] where no tag comes before
// the commit.
func Version(bi *debug.BuildInfo) string {
	v := strings.TrimPrefix(bi.Main.Version, "v")
	if v == "" || v == "(devel)" || strings.HasPrefix(v, "0.0.0-") {
		return Next
	}
	return v
}

// String returns the version with the commit, the Go release and the platform.
func (i Info) String() string {
	commit := ""
	if i.Revision != "" {
		commit = "commit " + i.Revision[:min(12, len(i.Revision))]
		if i.Modified {
			commit += ", modified"
		}
		commit += ", "
	}
	return i.Version + " (" + commit + i.Go + ", " + i.Platform + ")"
}
