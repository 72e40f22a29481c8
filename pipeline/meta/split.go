package meta

import (
	"fmt"

	"fmp/pipeline/task"
)

// Split splits a corpus: the last floor(n/8) of n rows are for validation, the rest for training.
// It returns an error for fewer than 8 rows. Rows stay in their order: a bank of rows sorted by
// class is to be shuffled before. Both parts share the corpus's memory.
func Split(corpus *task.Bank) (training, validation *task.Bank, err error) {
	n := corpus.Len() - corpus.Len()/8
	if n == corpus.Len() {
		return nil, nil, fmt.Errorf("splitting the corpus: %d rows; give at least 8", corpus.Len())
	}
	if training, err = task.NewBank(corpus.Features[:n*corpus.Dx], corpus.Dx, corpus.Labels[:n],
		corpus.C); err != nil {
		return nil, nil, fmt.Errorf("splitting the corpus: %w", err)
	}
	if validation, err = task.NewBank(corpus.Features[n*corpus.Dx:], corpus.Dx, corpus.Labels[n:],
		corpus.C); err != nil {
		return nil, nil, fmt.Errorf("splitting the corpus: %w", err)
	}
	return training, validation, nil
}
