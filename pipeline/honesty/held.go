package honesty

// NewUploads returns uploads that hold nothing yet: [Uploads.Add] adds to them. They take memory
// for the means that clients hold, and of clients x classes for masses alone.
func NewUploads(clients, classes, k int) Uploads {
	return Uploads{Clients: clients, Classes: classes, K: k,
		Masses: make([]float64, clients*classes),
		Rows:   make([]int32, clients*classes)}
}

// Add adds n images to a client's of a class and returns the place of their mean, where the caller
// adds numbers times n. [Uploads.Divide] makes means of the sums. The slice is valid until the next
// Add, which may move all means.
func (u *Uploads) Add(client, class int, n float64) []float64 {
	at := client*u.Classes + class
	if u.Masses[at] == 0 {
		u.Rows[at] = int32(len(u.Means) / u.K)
		u.Means = append(u.Means, make([]float64, u.K)...)
	}
	u.Masses[at] += n
	return u.mean(client, class)
}

// Divide divides a client's sums by their masses.
func (u *Uploads) Divide(client int) {
	for c, n := range u.masses(client) {
		if n > 0 {
			mean := u.mean(client, c)
			for j := range mean {
				mean[j] /= n
			}
		}
	}
}

// Client returns a client's masses [classes] and means [classes, k].
func (u *Uploads) Client(m int) (masses, means []float64) {
	masses = u.masses(m)
	if u.Rows == nil {
		return masses, u.Means[m*u.Classes*u.K:][:u.Classes*u.K]
	}
	means = make([]float64, u.Classes*u.K)
	for c, n := range masses {
		if n > 0 {
			copy(means[c*u.K:], u.mean(m, c))
		}
	}
	return masses, means
}

// Dense returns the uploads with means of all classes of all clients, zeros where a mass is 0. It
// takes clients x classes x k numbers.
func (u Uploads) Dense() Uploads {
	if u.Rows == nil {
		return u
	}
	means := make([]float64, 0, len(u.Masses)*u.K)
	for m := range u.Clients {
		_, of := u.Client(m)
		means = append(means, of...)
	}
	u.Means, u.Rows = means, nil
	return u
}

// misplaced reports whether the means are not as many as they should be, or not where Rows has
// them.
func (u *Uploads) misplaced() bool {
	if u.Rows == nil {
		return len(u.Means) != len(u.Masses)*u.K
	}
	for i, n := range u.Masses[:min(len(u.Masses), len(u.Rows))] {
		if at := int(u.Rows[i]); n > 0 && (at < 0 || at >= len(u.Means)/u.K) {
			return true
		}
	}
	return len(u.Rows) != len(u.Masses)
}
