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

// place is where a record is: the file, the offset, and the record's length.
type place struct {
	block  string
	offset int64
	length int
}

// scrubStream overwrites the deleted messages of one stream.
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
		if n, err := strconv.Atoi(strings.TrimSuffix(name, ".blk")); err == nil {
			blocks = append(blocks, n)
		}
	}
	slices.Sort(blocks)
	there := map[uint64]place{} // by sequence number
	for _, n := range blocks {
		if err := scrubBlock(dir, n, there, log); err != nil {
			return err
		}
	}
	return nil
}

// scrubBlock reads a block, adds its messages to those of the blocks before it, and overwrites
// those that its tombstones name. One whose overwriting was cut short is overwritten again.
func scrubBlock(dir string, n int, there map[uint64]place, log *slog.Logger) error {
	block := filepath.Join(dir, strconv.Itoa(n)+".blk")
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
		here := place{block, int64(at), length}
		switch {
		case !whole && (length == 0 || sequence&overwritten == 0):
			log.Warn("a file of the state cannot be read to its end: what is deleted there may not be erased",
				"file", block, "bytes", len(data), "read", at)
			return nil
		case !whole:
			err = overwrite(here, sequence)
		case sequence&overwritten != 0:
		case sequence&tombstone == 0:
			there[sequence] = here
		default:
			sequence &^= tombstone
			if gone, is := there[sequence]; is {
				delete(there, sequence)
				err = overwrite(gone, sequence)
			}
		}
		if err != nil {
			return err
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
// sequence number, and whether its checksum is right.
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

func checksum(h hash.Hash, parts ...[]byte) []byte {
	h.Reset()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// overwrite overwrites a record in place, which a full disk has room for, and leaves it as NATS
// does. The mark is on the disk first, in one byte: until the rest is, the checksum is wrong.
// NATS would leave out all that follows, and the next scrub tells by the mark that it is to end it.
func overwrite(p place, sequence uint64) error {
	h, err := blockHash(p.block)
	if err != nil {
		return err
	}
	blank := make([]byte, p.length)
	binary.LittleEndian.PutUint32(blank, uint32(p.length))
	binary.LittleEndian.PutUint64(blank[4:], sequence|overwritten)
	end := p.length - recordSum
	copy(blank[end:], checksum(h, blank[4:20], blank[recordHead:end]))
	f, err := os.OpenFile(p.block, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(blank[11:12], p.offset+11)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		_, err = f.WriteAt(blank, p.offset)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
