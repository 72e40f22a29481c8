package report

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// Constants of the Parquet format (https://github.com/apache/parquet-format, parquet.thrift) that
// are used here. A library for the whole format makes the program 4 MB larger; the test reads the
// output back with one.
const (
	parquetMagic = "PAR1"

	typeInt32, typeDouble, typeByteArray = 1, 5, 6
	optional                             = 1 // 0: required
	encodingPlain, encodingRLE           = 0, 3
	codecZstd                            = 6
	convertedUTF8                        = 0
	dataPage                             = 0
)

// parquetColumn is a column of rows: values of one type, int32, float64, *float64 (nil: null) or
// string, as the value like is.
type parquetColumn[T any] struct {
	name  string
	like  any
	value func(row T) any
}

// writeParquet writes rows as one row group with one Zstandard-compressed page per column. The file
// is PAR1, the pages each behind its header, the footer (FileMetaData), its length, PAR1. Field
// numbers are those of parquet.thrift. The whole file is in memory before it is written.
func writeParquet[T any](w io.Writer, rows []T, columns []parquetColumn[T]) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	file := bytes.NewBufferString(parquetMagic)
	schema := [][]byte{new(thrift).text(4, "row").int(5, int64(len(columns))).end()}
	encodings := [][]byte{binary.AppendVarint(nil, encodingPlain),
		binary.AppendVarint(nil, encodingRLE)}
	var chunks [][]byte
	total := 0
	for _, c := range columns {
		kind, repetition, page, err := c.encode(rows)
		if err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
		packed := enc.EncodeAll(page, nil)
		if len(page) > math.MaxInt32 || len(packed) > math.MaxInt32 {
			return fmt.Errorf("column %s has %d bytes; a page has at most %d: export "+
				"fewer runs at once", c.name, len(page), math.MaxInt32)
		}
		element := new(thrift).int(1, kind).int(3, repetition).text(4, c.name)
		if kind == typeByteArray {
			element.int(6, convertedUTF8)
		}
		schema = append(schema, element.end())
		header := new(thrift).int(1, dataPage).int(2, int64(len(page))).int(3, int64(len(packed))).
			nested(5, new(thrift).int(1, int64(len(rows))).int(2, encodingPlain).int(3,
				encodingRLE).int(4, encodingRLE).end()).end()
		at := file.Len()
		file.Write(header)
		file.Write(packed)
		total += len(header) + len(page)
		meta := new(thrift).int(1, kind).list(2, compactI32, encodings...).
			list(3, compactBinary, sized(c.name)).int(4, codecZstd).long(5, int64(len(rows))).
			long(6, int64(len(header)+len(page))).long(7, int64(len(header)+len(packed))).
			long(9, int64(at)).end()
		chunks = append(chunks, new(thrift).long(2, int64(at)).nested(3, meta).end())
	}
	group := new(thrift).list(1, compactStruct, chunks...).long(2, int64(total)).
		long(3, int64(len(rows))).end()
	footer := new(thrift).int(1, 1).list(2, compactStruct, schema...).long(3, int64(len(rows))).
		list(4, compactStruct, group).text(6, "fmp").end()
	file.Write(footer)
	file.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))))
	file.WriteString(parquetMagic)
	_, err = w.Write(file.Bytes())
	return err
}

// encode returns the column in PLAIN encoding, preceded by the definition levels if it is optional.
// PLAIN is little-endian; a text follows its length in 4 bytes; nulls have no value. A level is 1
// for a value and 0 for null. Levels are run-length encoded, at one bit each: twice the length of
// a run as varint, then its level. The bytes of all levels follow their number in 4 bytes.
func (c *parquetColumn[T]) encode(rows []T) (kind, repetition int64, page []byte, err error) {
	switch c.like.(type) {
	case int32:
		kind = typeInt32
	case float64:
		kind = typeDouble
	case *float64:
		kind, repetition = typeDouble, optional
	case string:
		kind = typeByteArray
	default:
		return 0, 0, nil, fmt.Errorf("has type %T; int32, float64, *float64 and string "+
			"can be written", c.like)
	}
	var levels []byte
	run, last := 0, byte(0)
	flush := func() {
		if run > 0 {
			levels = append(binary.AppendUvarint(levels, uint64(run)<<1), last)
		}
		run = 0
	}
	for _, row := range rows {
		switch v := c.value(row).(type) {
		case int32:
			page = binary.LittleEndian.AppendUint32(page, uint32(v))
		case float64:
			page = binary.LittleEndian.AppendUint64(page, math.Float64bits(v))
		case string:
			page = append(binary.LittleEndian.AppendUint32(page, uint32(len(v))), v...)
		case *float64:
			defined := byte(1)
			if v == nil {
				defined = 0
			}
			if defined != last {
				flush()
			}
			if run, last = run+1, defined; v != nil {
				page = binary.LittleEndian.AppendUint64(page, math.Float64bits(*v))
			}
		}
	}
	if repetition == optional {
		flush()
		page = append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...),
			page...)
	}
	return kind, repetition, page, nil
}

// thrift encodes a struct in Thrift's compact protocol: for each field a byte with the id delta and
// the type, then the value. Deltas have four bits: fields are added in ascending order of their
// ids, at most 15 apart. Integers are zigzag varints.
type thrift struct {
	b    []byte
	last int // the id of the last field
}

// Types of fields in the compact protocol.
const compactI32, compactI64, compactBinary, compactList, compactStruct = 5, 6, 8, 9, 12

func (t *thrift) field(id int, kind byte, value []byte) *thrift {
	t.b = append(append(t.b, byte(id-t.last)<<4|kind), value...)
	t.last = id
	return t
}

func (t *thrift) int(id int, v int64) *thrift {
	return t.field(id, compactI32, binary.AppendVarint(nil, v))
}

func (t *thrift) long(id int, v int64) *thrift {
	return t.field(id, compactI64, binary.AppendVarint(nil, v))
}

func (t *thrift) text(id int, s string) *thrift { return t.field(id, compactBinary, sized(s)) }

// sized is a text behind its length.
func sized(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

func (t *thrift) nested(id int, s []byte) *thrift { return t.field(id, compactStruct, s) }

// list adds a list of values of one type, each as a field has it. Its head is a byte of length and
// type; lengths from 15 on follow as a varint behind 15.
func (t *thrift) list(id int, kind byte, values ...[]byte) *thrift {
	n := len(values)
	head := []byte{byte(n)<<4 | kind}
	if n >= 15 {
		head = binary.AppendUvarint([]byte{0xf0 | kind}, uint64(n))
	}
	return t.field(id, compactList, append(head, bytes.Join(values, nil)...))
}

// end returns the finished struct: the fields and a byte 0.
func (t *thrift) end() []byte { return append(t.b, 0) }
