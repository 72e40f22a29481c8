package report

import (
	"fmt"
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"
)

// parquetColumn is a column of rows: values of one type, int32, float64, *float64 (nil: null) or
// string, as the value like is.
type parquetColumn[T any] struct {
	name  string
	like  any
	value func(row T) any
}

// writeParquet writes rows as columns in the order given, with pages in Zstandard
// (https://github.com/apache/parquet-format). A row is a struct whose fields are the columns, as
// the library takes the order of columns from one.
func writeParquet[T any](w io.Writer, rows []T, columns []parquetColumn[T]) error {
	fields := make([]reflect.StructField, len(columns))
	for i, c := range columns {
		switch c.like.(type) {
		case int32, float64, *float64, string:
		default:
			return fmt.Errorf("column %s has type %T; int32, float64, *float64 and string can be "+
				"written", c.name, c.like)
		}
		fields[i] = reflect.StructField{Name: fmt.Sprint("F", i), Type: reflect.TypeOf(c.like),
			Tag: reflect.StructTag(fmt.Sprintf("parquet:%q", c.name+",zstd"))}
	}
	row := reflect.New(reflect.StructOf(fields))
	out := parquet.NewWriter(w, parquet.SchemaOf(row.Interface()))
	for _, r := range rows {
		for i, c := range columns {
			row.Elem().Field(i).Set(reflect.ValueOf(c.value(r)))
		}
		if err := out.Write(row.Interface()); err != nil {
			return err
		}
	}
	return out.Close()
}
