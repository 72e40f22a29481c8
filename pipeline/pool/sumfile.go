package pool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// SumFile stores a noisy sum in the file Path beside a classifier, and in Folder under its inputs'
// digest, so that all classifiers of one set of uploads have one sum, whatever their names.
type SumFile struct {
	Path, Folder string
	// Redraw allows another sum of messages of which one is kept.
	Redraw bool
}

// NewSumFile returns the file at path, with the folder of the sums that were drawn on this machine.
func NewSumFile(path string) (SumFile, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return SumFile{}, fmt.Errorf("pool: no folder for configuration, where the noisy sum is "+
			"kept so that its noise is drawn once: %w; set it", err)
	}
	return SumFile{Path: path, Folder: filepath.Join(base, "fmp", "sums")}, nil
}

// String names the file beside the classifier.
func (f SumFile) String() string { return f.Path }

// Keep implements [Keeper]. Another process waits until both files are there, so that it finds this
// draw and makes none of its own. It holds a lock of the folder while noise is drawn and stored.
func (f SumFile) Keep(inputs string, clients map[string]string,
	draw func(before int) ([]byte, error)) ([]byte, error) {
	if err := os.MkdirAll(f.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("pool: the folder of noisy sums: %w", err)
	}
	lock, err := atomicfile.Take(f.Folder)
	if err != nil {
		return nil, fmt.Errorf("pool: the folder of noisy sums: %w", err)
	}
	defer lock.Close()
	return f.settle(inputs, clients, draw)
}

// settle returns the sum that is there, else the one that is drawn, and stores it in both places. A
// failure between them leaves the one of the machine, which the next call finds. The first file is
// written before the second, so that a draw is never known to the result alone. By the sum that the
// machine keeps, and the one beside the classifier:
//
//	none, none          drawn, and stored in both
//	none, of inputs     it came from another machine, and is kept here too
//	kept, none          stored beside
//	kept, equal         returned
//	kept, another draw  an error: one of both spends the budget twice
//	any, other inputs   returned, for Totals to refuse
func (f SumFile) settle(inputs string, clients map[string]string,
	draw func(before int) ([]byte, error)) ([]byte, error) {
	first := filepath.Join(f.Folder, inputs+".json")
	kept, err := readSum(first)
	if err != nil {
		return nil, err
	}
	beside, err := readSum(f.Path)
	switch {
	case err != nil:
		return nil, err
	case kept != nil && !isSum(kept, inputs):
		return nil, fmt.Errorf("%s is damaged, and the noise of these uploads was drawn: bring "+
			"the file back, as a second draw spends the budget again", first)
	case beside != nil && !isSum(beside, inputs):
		return beside, nil // Totals refuses it
	case beside != nil && kept != nil && !bytes.Equal(beside, kept):
		return nil, fmt.Errorf("%s is another draw of the noise of these uploads than %s: move "+
			"the former away, and the latter takes its place", f.Path, first)
	}
	sum := kept
	if sum == nil {
		sum = beside // it came from another machine
	}
	if sum == nil {
		if sum, err = f.drawn(clients, draw); err != nil {
			return nil, err
		}
	}
	if kept == nil {
		err = atomicfile.WritePrivate(first, sum)
	}
	if err == nil && beside == nil {
		err = atomicfile.WriteBytes(f.Path, sum)
	}
	return sum, err
}

// drawn draws the noise of a sum. Messages of which another sum is kept spend their budget again,
// which Redraw allows. It reads every sum that this machine keeps, as messages may be in several. A
// file that cannot be read is an error, as it may be of these messages. draw is told how often a
// client's noise was drawn before, the most of all clients.
func (f SumFile) drawn(clients map[string]string,
	draw func(before int) ([]byte, error)) ([]byte, error) {
	files, err := os.ReadDir(f.Folder)
	if err != nil {
		return nil, err
	}
	before := map[string]int{}
	most := 0
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".json" {
			continue
		}
		path := filepath.Join(f.Folder, file.Name())
		data, err := readSum(path)
		if err != nil {
			return nil, err
		}
		var of published
		if json.Unmarshal(data, &of) != nil {
			return nil, fmt.Errorf("%s is damaged, and may be of these uploads: bring the file "+
				"back, or move it away", path)
		}
		for _, m := range of.Messages {
			if client, in := clients[m]; in {
				before[client]++
				most = max(most, before[client])
			}
		}
	}
	if most > 0 && !f.Redraw {
		return nil, fmt.Errorf("noise was drawn for another sum of %d of these uploads, and a "+
			"second draw spends their budget again: give --redraw if that is meant", len(before))
	}
	return draw(most)
}

// readSum returns the bytes of a file; nil where there is none. More than MaxPublished bytes are an
// error.
func readSum(path string) ([]byte, error) {
	data, err := regularfile.ReadFile(path, MaxPublished)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// isSum reports whether data is a sum of these inputs. The inputs are a digest of the messages. The
// numbers are not looked at: Totals does so, before they count.
func isSum(data []byte, inputs string) bool {
	var of published
	return json.Unmarshal(data, &of) == nil && of.Inputs == inputs
}
