/* fmp.h: the client of a federation and its classifier, as a C library. docs/edge-library.md has examples and build lines.
 *
 * Results. Functions return FMP_OK, or FMP_ERROR with a message in *error where error is not NULL. A message, a text and a buffer are
 * allocated by the library and belong to the caller, who frees them with fmp_free. After an error the other outputs are as they were.
 *
 * Inputs. They belong to the caller, are read during the call alone, and are never changed. All are bounded before they are believed:
 * FMP_MAX_IMAGES images a call, 256 MiB a file of an image, 2 GiB a model. Models, images and keys may be anybody's: what is wrong with
 * them is an error. Images are files in memory (JPEG, PNG, WebP, GIF, TIFF, BMP, DICOM), of any size; formats are told by content. In
 * messages an image is named by its number, as 000012.jpg whatever its format.
 *
 * Threads. Any thread may call any function. Calls with one handle wait for each other; other handles run beside them.
 *
 * The library opens no connection. It writes no file. It holds the Go runtime, which must not be unloaded and does not survive fork(). */
#ifndef FMP_H
#define FMP_H

#include <stddef.h>
#include <stdint.h>

#define FMP_OK 0
#define FMP_ERROR (-1)
#define FMP_MAX_IMAGES 20000

/* A classifier or a client graph that is open. Handles are never given twice; 0 is none. */
typedef uint64_t fmp_handle;

/* Bytes of the caller's. */
typedef struct {
  const void *data;
  size_t size;
} fmp_bytes;

/* Bytes of the library's, to be freed with fmp_free(data). */
typedef struct {
  void *data;
  size_t size;
} fmp_buffer;

/* Images with their labels, numbers of classes from 0; labels may be NULL where none are needed. */
typedef struct {
  const fmp_bytes *items;
  const int32_t *labels;
  size_t n;
} fmp_images;

/* Where predictions go: arrays of the caller's of n images by `classes` numbers, in the order of the images. `classes` must be the
 * classifier's number of classes. All but probabilities may be NULL; the classifier must have sets or intervals that are asked for. */
typedef struct {
  size_t classes;
  float *probabilities;
  float *low, *high;   /* ends of the credible intervals */
  unsigned char *set;  /* 1 where the class is in the prediction set */
  float *disagreement; /* n: mutual information of class and head, in nats */
} fmp_predictions;

/* How an upload is made. name: of the client. round: its number, 0 for none. precision: "float32", "float16" or "int8"; NULL is float32.
 * at_least: classes of fewer images are left out; 0 leaves out none, and the most is 20,000. */
typedef struct {
  const char *name;
  uint64_t round;
  const char *precision;
  int32_t at_least;
} fmp_upload;

/* How counts are made. key: the contents of the client's key file. server: public key (base64) of the server that the report is for, or
 * NULL for a file. least: the least count that is told, 2 to 1,000, 0 for 10. epsilon above 0: noise on every count, with delta, and
 * least is 0. Then copies of a file count once, in the first of their classes, an image that the classifier fails for counts as wrong, and
 * one that cannot be read is left out. No ledger is kept, so the caller adds up what is spent on an image. */
typedef struct {
  fmp_bytes key;
  uint64_t round;
  const char *server;
  int32_t least;
  double epsilon, delta;
} fmp_evaluation;

#ifndef FMP_TYPES_ALONE
#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version, such as 0.1.0, to be freed. */
char *fmp_version(void);

/* Opens the classifier of a file. A notice of superseded versions beside it (its name with .notice) that names it is an error. */
int fmp_classifier_open(const char *path, fmp_handle *classifier, char **error);

/* Opens a classifier from the bytes of its file. */
int fmp_classifier_load(const void *data, size_t size, fmp_handle *classifier, char **error);

/* Opens a client graph from the bytes of its file. Its extractor runs on the images: it must be one that comes with the library, or have
 * the SHA-256 `approved` (64 hexadecimal digits); NULL approves none. The error names the digest of a refused one. Client graphs of
 * private rounds are refused. */
int fmp_client_load(const void *data, size_t size, const char *approved, fmp_handle *client, char **error);

/* Describes what is open, in JSON: kind, digest (SHA-256 of the file), classes, height, width, channels, sets, intervals. */
int fmp_describe(fmp_handle handle, char **json, char **error);

/* Classifies images. Where one cannot be read, nothing is written. */
int fmp_predict(fmp_handle classifier, const fmp_images *images, const fmp_predictions *out, char **error);

/* Makes the upload of labelled images, with the bytes that fmp-edge compress writes of the same images: a class's come in the order given,
 * which in a folder is that of their names. Images of one label whose pixels are equal, at the graph's size, count once. fmp-edge send and
 * fmp pool take them as a file. */
int fmp_compress(fmp_handle client, const fmp_images *images, const fmp_upload *how, fmp_buffer *upload, char **error);

/* Scores a classifier on labelled images and returns signed counts (JSON), which fmp evaluate --pool takes as a file. */
int fmp_evaluate(fmp_handle classifier, const fmp_images *images, const fmp_evaluation *how, fmp_buffer *report, char **error);

/* Closes a handle, after the calls that use it have ended. One that is not open does nothing. */
void fmp_close(fmp_handle handle);

/* Frees messages, texts and buffers of the library; NULL does nothing. */
void fmp_free(void *of_library);

#ifdef __cplusplus
}
#endif
#endif
#endif
