package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"fmp/models"
	"fmp/onnx/atomicfile"
)

// Names of the files of a folder for one round, which the client's page looks for beside itself
// where no server answers.
const graphFile, roundFile, sumsFile = "client.onnx", "round.json", "SHA256SUMS"

// Round says of which round the uploads of a folder are.
type Round struct {
	Round any    `json:"round"` // as pages read it
	Graph string `json:"graph"` // sha256 of the client graph
}

// pageRound returns a round as pages read it: pages of earlier builds, which may lie in the
// program's folder, take numbers alone, and JavaScript has no number for one beyond these.
func pageRound(round uint64) any {
	if round > 1<<53-1 {
		return strconv.FormatUint(round, 10)
	}
	return round
}

// WriteFolder writes the pages, the program and a client graph into a folder that any web server
// can show. program is the folder that make page wrote. SHA256SUMS, written last, has the digests
// of all files, in the form of sha256sum. It returns their number and bytes.
func WriteFolder(out, program string, graph []byte, round uint64) (files, size int, err error) {
	all, err := load(program)
	if err != nil {
		return 0, 0, err
	}
	all[graphFile] = graph
	if all[roundFile], err = json.Marshal(Round{pageRound(round),
		models.DigestBytes(graph)}); err != nil {
		return 0, 0, err
	}
	list := slices.Sorted(maps.Keys(all))
	var sums bytes.Buffer
	for _, name := range list {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(all[name]), name)
	}
	all[sumsFile] = sums.Bytes()
	for _, name := range append(list, sumsFile) {
		if err := atomicfile.WriteBytes(filepath.Join(out, name), all[name]); err != nil {
			return 0, 0, err
		}
		size += len(all[name])
	}
	return len(all), size, nil
}
