/* The model's element-wise functions, norms, loss and attention as plain loops. Compiled several times: with BERT_ROW
 * naming the table it defines, and with the flags of one instruction set. Loops are written so that the innermost one
 * runs over contiguous elements without branches.
 *
 * Compiled with relaxed floating-point rules: nothing here may depend on NaN or on the order of a sum. */
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "fast_math.h"

#ifdef BERT_DOUBLE
#define SQRT sqrt
#define LOG log
#else
#define SQRT sqrtf
#define LOG logf
#endif

static const real_t NORM_EPS = (real_t)1e-12;

static void gelu(size_t n, const real_t *restrict x, real_t *restrict y, real_t *restrict slope)
{
    for (size_t i = 0; i < n; i++) {
        real_t gauss = exp_negative((real_t)-0.5 * x[i] * x[i]);
        real_t cdf = normal_cdf(x[i], gauss);
        y[i] = x[i] * cdf;
        slope[i] = cdf + x[i] * (real_t)0.39894228040143268 * gauss;
    }
}

static void multiply(size_t n, const real_t *restrict factor, real_t *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor[i];
    }
}

static void add(size_t n, const real_t *restrict term, real_t *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] += term[i];
    }
}

static void add_bias(int rows, int width, const real_t *bias, real_t *x)
{
    for (int row = 0; row < rows; row++) {
        add((size_t)width, bias, x + (size_t)row * (size_t)width);
    }
}

static void column_sums(int rows, int width, const real_t *x, real_t *sums)
{
    memset(sums, 0, (size_t)width * sizeof(real_t));
    for (int row = 0; row < rows; row++) {
        add((size_t)width, x + (size_t)row * (size_t)width, sums);
    }
}

/* One row of the norm: y receives x + residual first. */
static void norm_row(int width, const real_t *restrict gain, const real_t *restrict bias, real_t *restrict y,
                     real_t *restrict hat, real_t *rstd)
{
    real_t sum = 0, squares = 0;

    for (int i = 0; i < width; i++) {
        sum += y[i];
    }
    real_t mean = sum / (real_t)width;
    for (int i = 0; i < width; i++) {
        hat[i] = y[i] - mean;
        squares += hat[i] * hat[i];
    }
    *rstd = 1 / SQRT(squares / (real_t)width + NORM_EPS);
    for (int i = 0; i < width; i++) {
        hat[i] *= *rstd;
        y[i] = hat[i] * gain[i] + bias[i];
    }
}

static void norm(int rows, int width, const real_t *x, const real_t *residual, const real_t *gain, const real_t *bias,
                 real_t *y, real_t *hat, real_t *rstd)
{
    for (int row = 0; row < rows; row++) {
        size_t at = (size_t)row * (size_t)width;

        memcpy(y + at, x + at, (size_t)width * sizeof(real_t));
        if (residual != NULL) {
            add((size_t)width, residual + at, y + at);
        }
        norm_row(width, gain, bias, y + at, hat + at, &rstd[row]);
    }
}

static void norm_back_row(int width, const real_t *restrict hat, real_t rstd, const real_t *restrict gain,
                          real_t *restrict dx, real_t *restrict d_gain, real_t *restrict d_bias)
{
    real_t sum = 0, along = 0;

    for (int i = 0; i < width; i++) {
        d_gain[i] += dx[i] * hat[i];
        d_bias[i] += dx[i];
        dx[i] *= gain[i];
        sum += dx[i];
        along += dx[i] * hat[i];
    }
    sum /= (real_t)width;
    along /= (real_t)width;
    for (int i = 0; i < width; i++) {
        dx[i] = rstd * (dx[i] - sum - hat[i] * along);
    }
}

static void norm_back(int rows, int width, const real_t *hat, const real_t *rstd, const real_t *gain, real_t *dx,
                      real_t *d_gain, real_t *d_bias)
{
    memset(d_gain, 0, (size_t)width * sizeof(real_t));
    memset(d_bias, 0, (size_t)width * sizeof(real_t));
    for (int row = 0; row < rows; row++) {
        size_t at = (size_t)row * (size_t)width;
        norm_back_row(width, hat + at, rstd[row], gain, dx + at, d_gain, d_bias);
    }
}

static real_t largest(int width, const real_t *x)
{
    real_t top = x[0];

    for (int i = 1; i < width; i++) {
        top = (x[i] > top) ? x[i] : top;
    }
    return top;
}

/* In place: x becomes its softmax. Returns the logarithm of the sum of exponentials. */
static real_t softmax(int width, real_t *x)
{
    real_t top = largest(width, x), sum = 0;

    for (int i = 0; i < width; i++) {
        x[i] = exp_negative(x[i] - top);
        sum += x[i];
    }
    real_t inverse = 1 / sum;
    for (int i = 0; i < width; i++) {
        x[i] *= inverse;
    }
    return top + LOG(sum);
}

static void cross_entropy(int rows, int width, const int *label, real_t *logits, real_t *loss, int *hit)
{
    real_t share = 1 / (real_t)rows;

    for (int row = 0; row < rows; row++) {
        real_t *x = logits + (size_t)row * (size_t)width;
        real_t target = x[label[row]];

        hit[row] = target >= largest(width, x);
        loss[row] = softmax(width, x) - target;
        x[label[row]] -= 1;
        for (int i = 0; i < width; i++) {
            x[i] *= share;
        }
    }
}

/* y += a * x over one head's elements */
static inline void axpy(int n, real_t a, const real_t *restrict x, real_t *restrict y)
{
    for (int i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

/* t[i][j] = scale * <a_i, b_j> for the rows of one head; b is read by columns so that the inner loop runs over j. */
static void head_products(int seq, int size, const real_t *a, int stride_a, const real_t *b, int stride_b, real_t scale,
                          real_t *t)
{
    real_t column[BERT_SEQ_MAX];

    memset(t, 0, (size_t)seq * (size_t)seq * sizeof(real_t));
    for (int d = 0; d < size; d++) {
        for (int j = 0; j < seq; j++) {
            column[j] = scale * b[j * stride_b + d];
        }
        for (int i = 0; i < seq; i++) {
            axpy(seq, a[i * stride_a + d], column, t + i * seq);
        }
    }
}

static void head_forward(const bert_shape_t *s, const real_t *qkv, real_t *probs, real_t *out)
{
    int hidden = s->heads * s->head_size, stride = 3 * hidden;
    real_t scale = 1 / SQRT((real_t)s->head_size);

    head_products(s->seq, s->head_size, qkv, stride, qkv + hidden, stride, scale, probs);
    for (int i = 0; i < s->seq; i++) {
        softmax(s->seq, probs + i * s->seq);
        memset(out + i * hidden, 0, (size_t)s->head_size * sizeof(real_t));
        for (int j = 0; j < s->seq; j++) {
            axpy(s->head_size, probs[i * s->seq + j], qkv + 2 * hidden + j * stride, out + i * hidden);
        }
    }
}

static void attention(const bert_shape_t *s, const real_t *qkv, real_t *probs, real_t *out)
{
    size_t hidden = (size_t)s->heads * (size_t)s->head_size, seq = (size_t)s->seq;

    for (size_t b = 0; b < (size_t)s->sequences; b++) {
        for (size_t h = 0; h < (size_t)s->heads; h++) {
            size_t at = h * (size_t)s->head_size;
            head_forward(s, qkv + b * seq * 3 * hidden + at, probs + (b * (size_t)s->heads + h) * seq * seq,
                         out + b * seq * hidden + at);
        }
    }
}

/* d_scores[i][j] = scale * p_ij * (dp_ij - sum_k p_ik dp_ik), in place of dp */
static void softmax_back(int seq, real_t scale, const real_t *restrict probs, real_t *restrict dp)
{
    for (int i = 0; i < seq; i++) {
        const real_t *p = probs + i * seq;
        real_t *d = dp + i * seq, along = 0;

        for (int j = 0; j < seq; j++) {
            along += p[j] * d[j];
        }
        for (int j = 0; j < seq; j++) {
            d[j] = scale * p[j] * (d[j] - along);
        }
    }
}

static void head_back(const bert_shape_t *s, const real_t *qkv, const real_t *probs, const real_t *d_out, real_t *d_qkv)
{
    int hidden = s->heads * s->head_size, stride = 3 * hidden, seq = s->seq, size = s->head_size;
    real_t ds[BERT_SEQ_MAX * BERT_SEQ_MAX];

    head_products(seq, size, d_out, hidden, qkv + 2 * hidden, stride, 1, ds);
    softmax_back(seq, 1 / SQRT((real_t)size), probs, ds);
    for (int i = 0; i < seq; i++) {
        for (int part = 0; part < 3; part++) {
            memset(d_qkv + i * stride + part * hidden, 0, (size_t)size * sizeof(real_t));
        }
    }
    for (int i = 0; i < seq; i++) {
        for (int j = 0; j < seq; j++) {
            real_t d = ds[i * seq + j];
            axpy(size, d, qkv + hidden + j * stride, d_qkv + i * stride);
            axpy(size, d, qkv + i * stride, d_qkv + hidden + j * stride);
            axpy(size, probs[i * seq + j], d_out + i * hidden, d_qkv + 2 * hidden + j * stride);
        }
    }
}

static void attention_back(const bert_shape_t *s, const real_t *qkv, const real_t *probs, const real_t *d_out,
                           real_t *d_qkv)
{
    size_t hidden = (size_t)s->heads * (size_t)s->head_size, seq = (size_t)s->seq;

    for (size_t b = 0; b < (size_t)s->sequences; b++) {
        for (size_t h = 0; h < (size_t)s->heads; h++) {
            size_t at = h * (size_t)s->head_size, token = b * seq;
            head_back(s, qkv + token * 3 * hidden + at, probs + (b * (size_t)s->heads + h) * seq * seq,
                      d_out + token * hidden + at, d_qkv + token * 3 * hidden + at);
        }
    }
}

#define ROW_NAME(_row) ROW_TEXT(_row)
#define ROW_TEXT(_row) #_row

const bert_kernels_t BERT_ROW = {
    .name = ROW_NAME(BERT_ROW),
    .gelu = gelu,
    .multiply = multiply,
    .add = add,
    .add_bias = add_bias,
    .column_sums = column_sums,
    .norm = norm,
    .norm_back = norm_back,
    .cross_entropy = cross_entropy,
    .attention = attention,
    .attention_back = attention_back,
};
