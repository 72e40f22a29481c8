package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
)

// A block, a file of a stream's messages, is a sequence of records: the length (4 bytes, little
// endian), the sequence number (8), the time (8), the length of the subject (2), the subject, the
// length of the header (4) and the header if there is one, the body, and a checksum (8) of all
// but the lengths.
const (
	recordHead, recordSum = 22, 8
	withHeader            = 1 << 31 // in the length
	overwritten           = 1 << 63 // in the sequence number
	tombstone             = 1 << 62 // likewise: the message of that number is deleted
	longestRecord         = 32 << 20
)

// scrub overwrites the deleted messages whose bytes are in the files of a NATS server that does not
// run. NATS writes that a message is deleted before it overwrites it: after a kill in between, it
// leaves the bytes for good. A message that no tombstone names is still counted, and [Store.erase]
// finds it.
func scrub(dir string, log *slog.Logger) error {
	streams, err := fs.Glob(os.DirFS(dir), "jetstream/*/streams/*/msgs")
	for _, at := range streams {
		if failed := scrubStream(filepath.Join(dir, filepath.FromSlash(at)), log); failed != nil {
			err = errors.Join(err, fmt.Errorf("erasing what is deleted in %s: %w", at, failed))
		}
	}
	return err
}

// place is where a record is: the number of its block, the offset, and the record's length.
type place struct {
	block  int
	offset int64
	length int
}

// remnant is a deleted message that is not overwritten yet, and its sequence number.
type remnant struct {
	place
	sequence uint64
}

// messages are those of the blocks that were read: the ones that are there by their sequence
// numbers, and the deleted ones that are not overwritten, by block.
type messages struct {
	there map[uint64]place
	gone  map[int][]remnant
}

// delete notes a message that is to be overwritten.
func (m *messages) delete(p place, sequence uint64) {
	m.gone[p.block] = append(m.gone[p.block], remnant{p, sequence})
}

// scrubStream overwrites the deleted messages of one stream. All blocks are read before one is
// written, as a tombstone may be in a later block than its message. In memory are one block and a
// place for each message.
func scrubStream(dir string, log *slog.Logger) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var blocks []int
	for _, f := range files {
		name := f.Name()
		if strings.HasSuffix(name, ".blk.tmp") || strings.HasSuffix(name, ".new") {
			// a block that was being written again, which nothing would read
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		number, is := strings.CutSuffix(name, ".blk")
		if n, err := strconv.Atoi(number); is && err == nil {
			blocks = append(blocks, n)
		}
	}
	slices.Sort(blocks)
	all := messages{map[uint64]place{}, map[int][]remnant{}}
	for _, n := range blocks {
		if err := all.read(dir, n, log); err != nil {
			return err
		}
	}
	for _, n := range blocks {
		if err := overwrite(blockFile(dir, n), all.gone[n]); err != nil {
			return err
		}
	}
	return nil
}

// blockFile is the file of the n-th block of a stream; n is in the key of its checksums too.
func blockFile(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)+".blk") }

// read reads a block, adds its messages to those of the blocks before it, and takes out those that
// its tombstones name. One whose overwriting was cut short is to be overwritten again.
// It costs O(bytes of the block). A record that cannot be read ends the block, as the next begins
// at its end.
func (m *messages) read(dir string, n int, log *slog.Logger) error {
	block := blockFile(dir, n)
	data, err := os.ReadFile(block)
	if err != nil {
		return err
	}
	h, err := blockHash(block)
	if err != nil {
		return err
	}
	for at := 0; at < len(data); {
		length, sequence, whole := readRecord(h, data[at:])
		here := place{n, int64(at), length}
		switch {
		case !whole && (length == 0 || sequence&overwritten == 0):
			log.Warn("a file of the state cannot be read to its end: what is deleted there may "+
				"not be erased", "file", block, "bytes", len(data), "read", at)
			return nil
		case !whole:
			m.delete(here, sequence)
		case sequence&overwritten != 0:
		case sequence&tombstone == 0:
			m.there[sequence] = here
		default:
			sequence &^= tombstone
			if gone, is := m.there[sequence]; is {
				delete(m.there, sequence)
				m.delete(gone, sequence)
			}
		}
		at += length
	}
	return nil
}

// blockHash is the hash of a block's checksums; its key is of the stream and of the block's number.
func blockHash(block string) (hash.Hash, error) {
	stream := filepath.Base(filepath.Dir(filepath.Dir(block)))
	key := sha256.Sum256([]byte(stream + "-" + strings.TrimSuffix(filepath.Base(block), ".blk")))
	return highwayhash.New64(key[:])
}

// readRecord reads the record at the start of the data: its length, 0 if there is none, its
// sequence number, and whether its checksum is right. Lengths are checked before they are used: a
// block that is cut short, or that something else wrote, is no error.
func readRecord(h hash.Hash, data []byte) (length int, sequence uint64, whole bool) {
	if len(data) < recordHead+recordSum {
		return 0, 0, false
	}
	first := binary.LittleEndian.Uint32(data)
	length = int(first &^ withHeader)
	if length < recordHead+recordSum || length > min(len(data), longestRecord) {
		return 0, 0, false
	}
	sequence = binary.LittleEndian.Uint64(data[4:])
	body := recordHead + int(binary.LittleEndian.Uint16(data[20:]))
	end := length - recordSum
	rest := body
	if first&withHeader != 0 {
		rest += 4
	}
	if rest > end {
		return length, sequence, false
	}
	sum := checksum(h, data[4:20], data[recordHead:body], data[rest:end])
	return length, sequence, bytes.Equal(sum, data[end:length])
}

// checksum is HighwayHash-64 of the parts, one after another. h is used again.
func checksum(h hash.Hash, parts ...[]byte) []byte {
	h.Reset()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// toDisk waits until a file is on the disk. Tests count it.
var toDisk = (*os.File).Sync

// overwrite overwrites records of a block in place, which a full disk has room for, and leaves them
// as NATS does. The marks are on the disk first, in one byte each: until the rest is, the checksums
// are wrong. NATS would leave out all that follows, and the next scrub tells by the marks that it
// is to end it. Thousands of records wait for the disk twice, and not twice each.
// The length of a record does not change, so that all others stay where they are.
func overwrite(block string, all []remnant) error {
	if len(all) == 0 {
		return nil
	}
	h, err := blockHash(block)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(block, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err == nil {
			_, err = f.WriteAt([]byte{byte((r.sequence | overwritten) >> 56)}, r.offset+11)
		}
	}
	if err == nil {
		err = toDisk(f)
	}
	for _, r := range all {
		if err == nil {
			_, err = f.WriteAt(r.blank(h), r.offset)
		}
	}
	if err == nil {
		err = toDisk(f)
	}
	return errors.Join(err, f.Close())
}

// blank is the record that takes the place of a deleted one.
func (r remnant) blank(h hash.Hash) []byte {
	blank := make([]byte, r.length)
	binary.LittleEndian.PutUint32(blank, uint32(r.length))
	binary.LittleEndian.PutUint64(blank[4:], r.sequence|overwritten)
	end := r.length - recordSum
	copy(blank[end:], checksum(h, blank[4:20], blank[recordHead:end]))
	return blank
}
