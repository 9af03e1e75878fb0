// Forward and backward pass of the model on the CPU, in bfloat16 with float32 accumulation (needs AVX-512 BF16).
//
// One sequence is one job: a thread takes it through all layers and back, so that activations stay in its cache, and
// adds the gradients to a buffer of its own; the buffers are summed at the end. Every matrix product, those of
// attention too, goes through one micro-kernel (`gemm`): the left operand is read as broadcast pairs of bfloat16,
// the right one from panels of 32 columns in which two consecutive rows are interleaved.
//
// Parameters and gradients are flat float arrays in the order of `model.LAYOUT`:
//   embedding [V,D]; per layer: norm1 [D], q [D,D], k [KV*32,D], v [KV*32,D], o [D,D], norm2 [D], gate [F,D], up [F,D],
//   down [D,F]; final norm [D].
#include <immintrin.h>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using u16 = uint16_t;
using u32 = uint32_t;
static const int HD = 32;  // width of a head; the kernels rely on it
static const float EPS = 1e-5f, LOG2E = 1.44269504f, LN2 = 0.69314718f;

// ---------------------------------------------------------------- memory
template <class T> struct Buf {  // 64-byte aligned, zeroed, grows but never shrinks
    T* p = nullptr; size_t n = 0;
    Buf() {}
    Buf(const Buf&) = delete;
    ~Buf() { free(p); }
    T* need(size_t m) {
        if (m > n) { free(p); n = (m + 63) / 64 * 64; p = (T*)aligned_alloc(64, n * sizeof(T)); memset(p, 0, n * sizeof(T)); }
        return p;
    }
    operator T*() const { return p; }
};

// ---------------------------------------------------------------- bfloat16
static inline u32 bits(float f) { u32 u; memcpy(&u, &f, 4); return u; }
static inline u16 to_bf(float f) { u32 u = bits(f); return (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }
static inline __m256i bf(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
static inline __m512 from_bf(const u16* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16)); }
static inline void put_bf(u16* p, __m512 x) { _mm256_storeu_si256((__m256i*)p, bf(x)); }
// (lo, hi) of each lane as one pair of bfloat16
static inline __m512i pair(__m512 lo, __m512 hi) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(bf(lo)), _mm512_slli_epi32(_mm512_cvtepu16_epi32(bf(hi)), 16));
}

// ---------------------------------------------------------------- matrix product
enum Mode { STORE, ADD, BF };  // float store, float accumulate, bfloat16 store
template <int MODE>
static void micro(int K2, const u32* A, long am, long ak, const u32* B, void* C, long ldc) {
    const int MR = 8;
    __m512 acc[MR][2];
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++) acc[m][0] = acc[m][1] = _mm512_setzero_ps();
    for (int k = 0; k < K2; k++, A += ak, B += 32) {
        __m512bh b0 = (__m512bh)_mm512_load_si512(B), b1 = (__m512bh)_mm512_load_si512(B + 16);
#pragma GCC unroll 8
        for (int m = 0; m < MR; m++) {
            __m512bh a = (__m512bh)_mm512_set1_epi32((int)A[m * am]);
            acc[m][0] = _mm512_dpbf16_ps(acc[m][0], a, b0);
            acc[m][1] = _mm512_dpbf16_ps(acc[m][1], a, b1);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; m++)
        for (int j = 0; j < 2; j++) {
            if (MODE == BF) put_bf((u16*)C + m * ldc + 16 * j, acc[m][j]);
            else {
                float* c = (float*)C + m * ldc + 16 * j;
                _mm512_storeu_ps(c, MODE == ADD ? _mm512_add_ps(_mm512_loadu_ps(c), acc[m][j]) : acc[m][j]);
            }
        }
}
// C[M,N] (+)= A[M,K] B[K,N]; M a multiple of 8, N of 32; pair (m,k2) of A is at A[m*am+k2*ak]; B in panels of `bs` words
template <int MODE>
static void gemm(int M, int N, int K2, const u32* A, long am, long ak, const u32* B, long bs, void* C, long ldc) {
    const size_t size = MODE == BF ? 2 : 4;
    for (int n = 0; n < N; n += 32, B += bs)
        for (int m = 0; m < M; m += 8) micro<MODE>(K2, A + m * am, am, ak, B, (char*)C + (m * ldc + n) * size, ldc);
}
// bfloat16 rows [R,C] -> panels [C/32][R/2][32] of row pairs
static void interleave(const u16* X, long ld, int R, int C, u32* out) {
    for (int c = 0; c < C; c += 32)
        for (int r = 0; r < R; r += 2, out += 32) {
            const u16 *a = X + r * ld + c, *b = a + ld;
            for (int j = 0; j < 32; j += 16) {
                __m512i lo = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(a + j)));
                __m512i hi = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(b + j)));
                _mm512_store_si512(out + j, _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
            }
        }
}
// bfloat16 rows [R,32] -> panels [R/32][16][32]: columns are the rows, pairs run along the 32 values
static void columns(const u16* X, int R, u32* out) {
    const u32* x = (const u32*)X;
    for (int r = 0; r < R; r += 32, out += 512)
        for (int i = 0; i < 32; i++)
            for (int k = 0; k < 16; k++) out[k * 32 + i] = x[(r + i) * 16 + k];
}
// W [O,I] -> panels for x W^T (pairs along I, columns O)
static void pack_forward(const float* W, int O, int I, u32* out) {
    for (int o = 0; o < O; o += 32)
        for (int i = 0; i < I; i += 2, out += 32)
            for (int j = 0; j < 32; j++) out[j] = to_bf(W[(o + j) * I + i]) | (u32)to_bf(W[(o + j) * I + i + 1]) << 16;
}
// W [O,I] -> panels for dy W (pairs along O, columns I)
static void pack_backward(const float* W, int O, int I, u32* out) {
    for (int i = 0; i < I; i += 32)
        for (int o = 0; o < O; o += 2, out += 32)
            for (int j = 0; j < 32; j++) out[j] = to_bf(W[o * I + i + j]) | (u32)to_bf(W[(o + 1) * I + i + j]) << 16;
}

// ---------------------------------------------------------------- element-wise
static inline __m512 exp2_(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-126.f));
    __m512 n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.3333558e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504109e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, n);
}
static void norm_forward(const float* x, const float* w, int R, int D, float* rstd, u16* h) {
    for (int r = 0; r < R; r++, x += D, h += D) {
        __m512 s = _mm512_setzero_ps();
        for (int i = 0; i < D; i += 16) { __m512 v = _mm512_loadu_ps(x + i); s = _mm512_fmadd_ps(v, v, s); }
        rstd[r] = 1.f / sqrtf(_mm512_reduce_add_ps(s) / D + EPS);
        __m512 k = _mm512_set1_ps(rstd[r]);
        for (int i = 0; i < D; i += 16) put_bf(h + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), k), _mm512_loadu_ps(w + i)));
    }
}
// dx += d norm(x) / dx applied to dh; dw += its share
static void norm_backward(const float* x, const float* w, const float* rstd, const float* dh, int R, int D, float* dx, float* dw) {
    for (int r = 0; r < R; r++, x += D, dh += D, dx += D) {
        __m512 s = _mm512_setzero_ps(), k = _mm512_set1_ps(rstd[r]);
        for (int i = 0; i < D; i += 16) {
            __m512 xh = _mm512_mul_ps(_mm512_loadu_ps(x + i), k), g = _mm512_loadu_ps(dh + i);
            s = _mm512_fmadd_ps(_mm512_mul_ps(g, _mm512_loadu_ps(w + i)), xh, s);
            _mm512_storeu_ps(dw + i, _mm512_fmadd_ps(g, xh, _mm512_loadu_ps(dw + i)));
        }
        __m512 c = _mm512_set1_ps(_mm512_reduce_add_ps(s) / D);
        for (int i = 0; i < D; i += 16) {
            __m512 xh = _mm512_mul_ps(_mm512_loadu_ps(x + i), k), g = _mm512_mul_ps(_mm512_loadu_ps(dh + i), _mm512_loadu_ps(w + i));
            _mm512_storeu_ps(dx + i, _mm512_fmadd_ps(k, _mm512_fnmadd_ps(xh, c, g), _mm512_loadu_ps(dx + i)));
        }
    }
}
static inline __m512 sigmoid(__m512 x) {
    return _mm512_div_ps(_mm512_set1_ps(1.f), _mm512_add_ps(_mm512_set1_ps(1.f), exp2_(_mm512_mul_ps(_mm512_max_ps(x, _mm512_set1_ps(-80.f)), _mm512_set1_ps(-LOG2E)))));
}
static void swiglu_forward(const u16* gu, int R, int F, u16* a) {
    for (int r = 0; r < R; r++, gu += 2 * F, a += F)
        for (int i = 0; i < F; i += 16) {
            __m512 g = from_bf(gu + i);
            put_bf(a + i, _mm512_mul_ps(_mm512_mul_ps(g, sigmoid(g)), from_bf(gu + F + i)));
        }
}
static void swiglu_backward(const u16* gu, const u16* da, int R, int F, u16* dgu) {
    const __m512 one = _mm512_set1_ps(1.f);
    for (int r = 0; r < R; r++, gu += 2 * F, da += F, dgu += 2 * F)
        for (int i = 0; i < F; i += 16) {
            __m512 g = from_bf(gu + i), u = from_bf(gu + F + i), d = from_bf(da + i), s = sigmoid(g), gs = _mm512_mul_ps(g, s);
            put_bf(dgu + F + i, _mm512_mul_ps(d, gs));
            __m512 k = _mm512_fmadd_ps(gs, _mm512_sub_ps(one, s), s);  // silu'(g)
            put_bf(dgu + i, _mm512_mul_ps(_mm512_mul_ps(d, u), k));
        }
}
static void to_bf_rows(const float* x, size_t n, u16* y) { for (size_t i = 0; i < n; i += 16) put_bf(y + i, _mm512_loadu_ps(x + i)); }

// ---------------------------------------------------------------- the model
struct LayerPack { Buf<u32> qkv_f, qkv_b, o_f, o_b, gu_f, gu_b, d_f, d_b; };
struct LayerActs { Buf<float> x1, x2, r1, r2, lse; Buf<u16> h1, q, k, v, ao, h2, gu, act; };

struct Model;
struct Worker {
    Model* m;
    std::vector<LayerActs> acts;
    Buf<float> x, dx, tmp, rf, S, dP, dq, dk, dv, grads, D_, logits, hs;
    Buf<u16> hf, P, dS, dao, dqkv, dact, dgu, b16, row, dor, dlog, hsel;
    Buf<u32> KA, KB, VA, VB, QB, OB, Pt, dSt, i1, i2;
    void sequence(const int* tok, int N, const int* sel, const int* target, const float* weight, int ns, float* loss, int* hit, bool backward);
    void attention(LayerActs& a, int NP);
    void attention_backward(LayerActs& a, int NP);
};
struct Model {
    int V, D, L, H, KV, F, threads;
    std::vector<LayerPack> pack;
    Buf<u32> e_f, e_b;
    Buf<float> cosv, sinv;
    int rope_n = 0;
    const float* w = nullptr;
    std::vector<Worker> workers;
    size_t layer_size() const { return 2 * (size_t)D + (size_t)(H + 2 * KV) * HD * D + (size_t)D * H * HD + 3 * (size_t)F * D; }
    size_t layer(int l) const { return (size_t)V * D + l * layer_size(); }
    size_t final_norm() const { return layer(L); }
    size_t size() const { return layer(L) + D; }
    // offsets inside a layer
    size_t n1() const { return 0; }
    size_t qkv() const { return D; }
    size_t o() const { return qkv() + (size_t)(H + 2 * KV) * HD * D; }
    size_t n2() const { return o() + (size_t)D * H * HD; }
    size_t gu() const { return n2() + D; }
    size_t d() const { return gu() + 2 * (size_t)F * D; }
    void set(const float* params) {
        w = params;
        int A = (H + 2 * KV) * HD;
        pack_forward(w, V, D, e_f.need((size_t)V * D / 2));
        pack_backward(w, V, D, e_b.need((size_t)V * D / 2));
        for (int l = 0; l < L; l++) {
            const float* p = w + layer(l);
            LayerPack& k = pack[l];
            pack_forward(p + qkv(), A, D, k.qkv_f.need((size_t)A * D / 2));
            pack_backward(p + qkv(), A, D, k.qkv_b.need((size_t)A * D / 2));
            pack_forward(p + o(), D, H * HD, k.o_f.need((size_t)D * H * HD / 2));
            pack_backward(p + o(), D, H * HD, k.o_b.need((size_t)D * H * HD / 2));
            pack_forward(p + gu(), 2 * F, D, k.gu_f.need((size_t)F * D));
            pack_backward(p + gu(), 2 * F, D, k.gu_b.need((size_t)F * D));
            pack_forward(p + d(), D, F, k.d_f.need((size_t)F * D / 2));
            pack_backward(p + d(), D, F, k.d_b.need((size_t)F * D / 2));
        }
    }
    void rope(int n) {
        if (n <= rope_n) return;
        cosv.need((size_t)n * HD / 2); sinv.need((size_t)n * HD / 2); rope_n = n;
        for (int t = 0; t < n; t++)
            for (int i = 0; i < HD / 2; i++) {
                float a = t * (1.f / (float)pow(10000.0, 2.0 * i / HD));
                cosv[t * (HD / 2) + i] = cosf(a); sinv[t * (HD / 2) + i] = sinf(a);
            }
    }
};

void Worker::attention(LayerActs& a, int NP) {
    int H = m->H, KV = m->KV, G = H / KV, ldo = H * HD, lds = NP + 32;
    KA.need((size_t)NP * 16); VB.need((size_t)NP * 16); S.need(8 * (size_t)lds); P.need(8 * (size_t)lds);
    alignas(64) float o[8 * HD];
    for (int g = 0; g < KV; g++) {
        columns(a.k + (size_t)g * NP * HD, NP, KA);
        interleave(a.v + (size_t)g * NP * HD, HD, NP, HD, VB);
        for (int h = g * G; h < (g + 1) * G; h++)
            for (int q0 = 0; q0 < NP; q0 += 8) {
                int kend = (q0 + 8 + 31) / 32 * 32;
                gemm<STORE>(8, kend, 16, (const u32*)(a.q + ((size_t)h * NP + q0) * HD), 16, 1, KA, 512, S, lds);
                float inv[8];
                for (int i = 0; i < 8; i++) {
                    float* s = S + (size_t)i * lds;
                    for (int k = q0 + i + 1; k < kend; k++) s[k] = -1e30f;
                    __m512 mx = _mm512_set1_ps(-1e30f);
                    for (int k = 0; k < kend; k += 16) mx = _mm512_max_ps(mx, _mm512_load_ps(s + k));
                    float top = _mm512_reduce_max_ps(mx);
                    __m512 t = _mm512_set1_ps(top), sum = _mm512_setzero_ps();
                    for (int k = 0; k < kend; k += 16) {
                        __m512 v = _mm512_load_ps(s + k), e = exp2_(_mm512_sub_ps(v, t));
                        e = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, _mm512_set1_ps(-1e29f), _CMP_GT_OQ), e);
                        sum = _mm512_add_ps(sum, e);
                        put_bf(P + (size_t)i * lds + k, e);
                    }
                    float z = _mm512_reduce_add_ps(sum);
                    inv[i] = 1.f / z;
                    a.lse[(size_t)h * NP + q0 + i] = top + log2f(z);
                }
                gemm<STORE>(8, HD, kend / 2, (const u32*)(u16*)P, lds / 2, 1, VB, 0, o, HD);
                for (int i = 0; i < 8; i++)
                    for (int j = 0; j < HD; j += 16)
                        put_bf(a.ao + (size_t)(q0 + i) * ldo + h * HD + j, _mm512_mul_ps(_mm512_load_ps(o + i * HD + j), _mm512_set1_ps(inv[i])));
            }
    }
}

// from dao (gradient of the heads' outputs, bfloat16 [NP, H*32]) to dqkv
void Worker::attention_backward(LayerActs& a, int NP) {
    int H = m->H, KV = m->KV, G = H / KV, ldo = H * HD, A = (H + 2 * KV) * HD;
    const int QB_ = 32, KC = 256;
    size_t n = (size_t)NP * 16;
    KA.need(n); KB.need(n); VA.need(n); QB.need(n); OB.need(n);
    S.need(QB_ * KC); dP.need(QB_ * KC); Pt.need(QB_ / 2 * KC); dSt.need(QB_ / 2 * KC); dS.need(QB_ * KC);
    dq.need((size_t)NP * HD); dk.need((size_t)NP * HD); dv.need((size_t)NP * HD); D_.need(NP); dor.need((size_t)NP * HD); dqkv.need((size_t)NP * A);
    const float scale = 1.f / sqrtf((float)HD);
    auto unrope = [&](const float* src, u16* dst, long ld, float k) {  // rotate back, scale, store
        for (int t = 0; t < NP; t++)
            for (int i = 0; i < HD / 2; i++) {
                float c = m->cosv[t * (HD / 2) + i] * k, s = m->sinv[t * (HD / 2) + i] * k, x = src[t * HD + 2 * i], y = src[t * HD + 2 * i + 1];
                dst[t * ld + 2 * i] = to_bf(x * c + y * s);
                dst[t * ld + 2 * i + 1] = to_bf(y * c - x * s);
            }
    };
    for (int g = 0; g < KV; g++) {
        const u16 *kr = a.k + (size_t)g * NP * HD, *vr = a.v + (size_t)g * NP * HD;
        columns(kr, NP, KA); columns(vr, NP, VA); interleave(kr, HD, NP, HD, KB);
        memset(dk, 0, sizeof(float) * NP * HD); memset(dv, 0, sizeof(float) * NP * HD);
        for (int h = g * G; h < (g + 1) * G; h++) {
            const u16* qr = a.q + (size_t)h * NP * HD;
            const float* lse = a.lse + (size_t)h * NP;
            for (int t = 0; t < NP; t++) {
                const u16 *o = a.ao + (size_t)t * ldo + h * HD, *d = dao + (size_t)t * ldo + h * HD;
                memcpy(dor + (size_t)t * HD, d, HD * 2);
                D_[t] = _mm512_reduce_add_ps(_mm512_fmadd_ps(from_bf(o), from_bf(d), _mm512_mul_ps(from_bf(o + 16), from_bf(d + 16))));
            }
            interleave(qr, HD, NP, HD, QB); interleave(dor, HD, NP, HD, OB);
            memset(dq, 0, sizeof(float) * NP * HD);
            for (int q0 = 0; q0 < NP; q0 += QB_)
                for (int k0 = 0; k0 < q0 + QB_; k0 += KC) {
                    int kn = std::min(KC, q0 + QB_ - k0);
                    gemm<STORE>(QB_, kn, 16, (const u32*)(qr + (size_t)q0 * HD), 16, 1, KA + (size_t)k0 * 16, 512, S, KC);
                    gemm<STORE>(QB_, kn, 16, (const u32*)(dor + (size_t)q0 * HD), 16, 1, VA + (size_t)k0 * 16, 512, dP, KC);
                    bool diagonal = k0 + kn > q0;
                    for (int i = 0; i < QB_; i += 2) {
                        __m512 l0 = _mm512_set1_ps(lse[q0 + i]), l1 = _mm512_set1_ps(lse[q0 + i + 1]);
                        __m512 d0 = _mm512_set1_ps(D_[q0 + i]), d1 = _mm512_set1_ps(D_[q0 + i + 1]);
                        for (int k = 0; k < kn; k += 16) {
                            __m512 p0 = exp2_(_mm512_sub_ps(_mm512_load_ps(S + i * KC + k), l0)), p1 = exp2_(_mm512_sub_ps(_mm512_load_ps(S + (i + 1) * KC + k), l1));
                            if (diagonal) {
                                int room = q0 + i + 1 - (k0 + k);  // keys of this group that query i may see
                                auto mask = [](int r) { return (__mmask16)(r >= 16 ? 0xffff : r <= 0 ? 0 : (1 << r) - 1); };
                                p0 = _mm512_maskz_mov_ps(mask(room), p0); p1 = _mm512_maskz_mov_ps(mask(room + 1), p1);
                            }
                            __m512 s0 = _mm512_mul_ps(p0, _mm512_sub_ps(_mm512_load_ps(dP + i * KC + k), d0)), s1 = _mm512_mul_ps(p1, _mm512_sub_ps(_mm512_load_ps(dP + (i + 1) * KC + k), d1));
                            _mm512_store_si512(Pt + i / 2 * KC + k, pair(p0, p1));
                            __m256i b0 = bf(s0), b1 = bf(s1);
                            _mm256_store_si256((__m256i*)(dS + i * KC + k), b0);
                            _mm256_store_si256((__m256i*)(dS + (i + 1) * KC + k), b1);
                            _mm512_store_si512(dSt + i / 2 * KC + k, _mm512_or_si512(_mm512_cvtepu16_epi32(b0), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b1), 16)));
                        }
                    }
                    gemm<ADD>(QB_, HD, kn / 2, (const u32*)(u16*)dS, KC / 2, 1, KB + (size_t)k0 * 16, 0, dq + (size_t)q0 * HD, HD);
                    gemm<ADD>(kn, HD, QB_ / 2, Pt, 1, KC, OB + (size_t)q0 * 16, 0, dv + (size_t)k0 * HD, HD);
                    gemm<ADD>(kn, HD, QB_ / 2, dSt, 1, KC, QB + (size_t)q0 * 16, 0, dk + (size_t)k0 * HD, HD);
                }
            unrope(dq, dqkv + h * HD, A, scale);
        }
        unrope(dk, dqkv + (H + g) * HD, A, LN2);  // q carries scale * log2(e)
        for (int t = 0; t < NP; t++)
            for (int j = 0; j < HD; j += 16) put_bf(dqkv + (size_t)t * A + (H + KV + g) * HD + j, _mm512_load_ps(dv + (size_t)t * HD + j));
    }
}

void Worker::sequence(const int* tok, int N, const int* sel, const int* target, const float* weight, int ns, float* loss, int* hit, bool backward) {
    const int D = m->D, F = m->F, H = m->H, KV = m->KV, L = m->L, V = m->V, A = (H + 2 * KV) * HD, HA = H * HD;
    const int NP = (N + 31) / 32 * 32;
    const size_t nd = (size_t)NP * D;
    float* g = grads.need(m->size());
    x.need(nd); dx.need(nd); tmp.need((size_t)NP * std::max(A, D)); rf.need(NP); hf.need(nd);
    memset(x + (size_t)N * D, 0, sizeof(float) * (NP - N) * D);
    for (int t = 0; t < N; t++) memcpy(x + (size_t)t * D, m->w + (size_t)tok[t] * D, sizeof(float) * D);
    const float qs = LOG2E / sqrtf((float)HD);
    for (int l = 0; l < L; l++) {
        LayerActs& a = acts[l];
        const LayerPack& p = m->pack[l];
        const float* w = m->w + m->layer(l);
        memcpy(a.x1.need(nd), x, nd * 4);
        norm_forward(x, w + m->n1(), NP, D, a.r1.need(NP), a.h1.need(nd));
        gemm<STORE>(NP, A, D / 2, (const u32*)(u16*)a.h1, D / 2, 1, p.qkv_f, (long)D / 2 * 32, tmp, A);
        a.q.need((size_t)NP * H * HD); a.k.need((size_t)NP * KV * HD); a.v.need((size_t)NP * KV * HD); a.lse.need((size_t)NP * H); a.ao.need((size_t)NP * HA);
        for (int t = 0; t < NP; t++)
            for (int h = 0; h < H + KV; h++) {
                const float* s = tmp + (size_t)t * A + h * HD;
                u16* o = h < H ? a.q + ((size_t)h * NP + t) * HD : a.k + ((size_t)(h - H) * NP + t) * HD;
                float k = h < H ? qs : 1.f;
                for (int i = 0; i < HD / 2; i++) {
                    float c = m->cosv[t * (HD / 2) + i] * k, sn = m->sinv[t * (HD / 2) + i] * k;
                    o[2 * i] = to_bf(s[2 * i] * c - s[2 * i + 1] * sn);
                    o[2 * i + 1] = to_bf(s[2 * i] * sn + s[2 * i + 1] * c);
                }
            }
        for (int t = 0; t < NP; t++)
            for (int h = 0; h < KV; h++) to_bf_rows(tmp + (size_t)t * A + (H + KV + h) * HD, HD, a.v + ((size_t)h * NP + t) * HD);
        attention(a, NP);
        gemm<ADD>(NP, D, HA / 2, (const u32*)(u16*)a.ao, HA / 2, 1, p.o_f, (long)HA / 2 * 32, x, D);
        memcpy(a.x2.need(nd), x, nd * 4);
        norm_forward(x, w + m->n2(), NP, D, a.r2.need(NP), a.h2.need(nd));
        gemm<BF>(NP, 2 * F, D / 2, (const u32*)(u16*)a.h2, D / 2, 1, p.gu_f, (long)D / 2 * 32, a.gu.need((size_t)NP * 2 * F), 2 * F);
        swiglu_forward(a.gu, NP, F, a.act.need((size_t)NP * F));
        gemm<ADD>(NP, D, F / 2, (const u32*)(u16*)a.act, F / 2, 1, p.d_f, (long)F / 2 * 32, x, D);
    }
    const float* fn = m->w + m->final_norm();
    norm_forward(x, fn, NP, D, rf, hf);
    // loss on the selected positions, 32 at a time
    const int CH = 32;
    logits.need((size_t)CH * V); dlog.need((size_t)CH * V); hsel.need((size_t)CH * D); hs.need((size_t)CH * D);
    float* dh = tmp;
    if (backward) memset(dh, 0, nd * 4);
    for (int s0 = 0; s0 < ns; s0 += CH) {
        int c = std::min(CH, ns - s0);
        for (int i = 0; i < CH; i++)
            if (i < c) memcpy(hsel + (size_t)i * D, hf + (size_t)sel[s0 + i] * D, D * 2);
            else memset(hsel + (size_t)i * D, 0, D * 2);
        gemm<STORE>(CH, V, D / 2, (const u32*)(u16*)hsel, D / 2, 1, m->e_f, (long)D / 2 * 32, logits, V);
        for (int i = 0; i < CH; i++) {
            float* z = logits + (size_t)i * V;
            u16* dz = dlog + (size_t)i * V;
            if (i >= c) { memset(dz, 0, (size_t)V * 2); continue; }
            int t = target[s0 + i];
            __m512 mx = _mm512_loadu_ps(z);
            for (int v = 16; v < V; v += 16) mx = _mm512_max_ps(mx, _mm512_loadu_ps(z + v));
            float top = _mm512_reduce_max_ps(mx), zt = z[t];
            hit[s0 + i] = zt >= top;
            __m512 sum = _mm512_setzero_ps(), k = _mm512_set1_ps(LOG2E), off = _mm512_set1_ps(-top * LOG2E);
            for (int v = 0; v < V; v += 16) {
                __m512 e = exp2_(_mm512_fmadd_ps(_mm512_loadu_ps(z + v), k, off));
                sum = _mm512_add_ps(sum, e);
                _mm512_storeu_ps(z + v, e);
            }
            float zsum = _mm512_reduce_add_ps(sum), wt = weight[s0 + i];
            loss[s0 + i] = logf(zsum) + top - zt;
            __m512 kk = _mm512_set1_ps(wt / zsum);
            for (int v = 0; v < V; v += 16) put_bf(dz + v, _mm512_mul_ps(_mm512_loadu_ps(z + v), kk));
            dz[t] = to_bf(z[t] * wt / zsum - wt);
        }
        if (!backward) continue;
        gemm<STORE>(CH, D, V / 2, (const u32*)(u16*)dlog, V / 2, 1, m->e_b, (long)V / 2 * 32, hs, D);
        for (int i = 0; i < c; i++) {
            float* d = dh + (size_t)sel[s0 + i] * D;
            for (int j = 0; j < D; j++) d[j] += hs[i * D + j];
        }
        interleave(dlog, V, CH, V, i1.need((size_t)CH / 2 * V));
        interleave(hsel, D, CH, D, i2.need((size_t)CH / 2 * D));
        for (int v = 0; v < V; v += 32) gemm<ADD>(32, D, CH / 2, i1 + (size_t)v * CH / 2, 1, 32, i2, (long)CH / 2 * 32, g + (size_t)v * D, D);
    }
    if (!backward) return;
    memset(dx, 0, nd * 4);
    norm_backward(x, fn, rf, dh, NP, D, dx, g + m->final_norm());
    // dW [O,I] += dy^T x
    auto weight_grad = [&](const u16* dy, int O, const u16* in, int I, float* dW) {
        interleave(dy, O, NP, O, i1.need((size_t)NP / 2 * O));
        interleave(in, I, NP, I, i2.need((size_t)NP / 2 * I));
        for (int o = 0; o < O; o += 32) gemm<ADD>(32, I, NP / 2, i1 + (size_t)o * NP / 2, 1, 32, i2, (long)NP / 2 * 32, dW + (size_t)o * I, I);
    };
    b16.need(nd); dact.need((size_t)NP * F); dgu.need((size_t)NP * 2 * F); dao.need((size_t)NP * HA);
    for (int l = L - 1; l >= 0; l--) {
        LayerActs& a = acts[l];
        const LayerPack& p = m->pack[l];
        const float* w = m->w + m->layer(l);
        float* gl = g + m->layer(l);
        to_bf_rows(dx, nd, b16);
        gemm<BF>(NP, F, D / 2, (const u32*)(u16*)b16, D / 2, 1, p.d_b, (long)D / 2 * 32, dact, F);
        weight_grad(b16, D, a.act, F, gl + m->d());
        swiglu_backward(a.gu, dact, NP, F, dgu);
        gemm<STORE>(NP, D, F, (const u32*)(u16*)dgu, F, 1, p.gu_b, (long)F * 32, tmp, D);
        weight_grad(dgu, 2 * F, a.h2, D, gl + m->gu());
        norm_backward(a.x2, w + m->n2(), a.r2, tmp, NP, D, dx, gl + m->n2());
        to_bf_rows(dx, nd, b16);
        gemm<BF>(NP, HA, D / 2, (const u32*)(u16*)b16, D / 2, 1, p.o_b, (long)D / 2 * 32, dao, HA);
        weight_grad(b16, D, a.ao, HA, gl + m->o());
        attention_backward(a, NP);
        gemm<STORE>(NP, D, A / 2, (const u32*)(u16*)dqkv, A / 2, 1, p.qkv_b, (long)A / 2 * 32, tmp, D);
        weight_grad(dqkv, A, a.h1, D, gl + m->qkv());
        norm_backward(a.x1, w + m->n1(), a.r1, tmp, NP, D, dx, gl + m->n1());
    }
    for (int t = 0; t < N; t++) {
        float *d = dx + (size_t)t * D, *e = g + (size_t)tok[t] * D;
        for (int j = 0; j < D; j++) e[j] += d[j];
    }
}

extern "C" {
void* warm_new(int V, int D, int L, int H, int KV, int F, int threads) {
    if (V % 32 || D % 32 || F % 32 || H % KV) return nullptr;
    Model* m = new Model();
    m->V = V; m->D = D; m->L = L; m->H = H; m->KV = KV; m->F = F; m->threads = threads;
    m->pack = std::vector<LayerPack>(L);
    m->workers = std::vector<Worker>(threads);
    for (auto& w : m->workers) { w.m = m; w.acts = std::vector<LayerActs>(L); }
    return m;
}
long warm_size(void* p) { return (long)((Model*)p)->size(); }
// Sequences s: tokens[first[s]..first[s+1]); selected positions sel_first[s]..sel_first[s+1], each with its target and
// weight. Writes each selected position's loss and whether the target was the likeliest token; grads may be null.
void warm_run(void* p, const float* params, float* grads, int nseq, const int* first, const int* tokens, const int* sel_first,
              const int* sel, const int* target, const float* weight, float* loss, int* hit) {
    Model* m = (Model*)p;
    m->set(params);
    int longest = 0;
    std::vector<int> order(nseq);
    for (int s = 0; s < nseq; s++) { order[s] = s; longest = std::max(longest, first[s + 1] - first[s]); }
    for (int i = 1; i < nseq; i++)  // longest first
        for (int j = i; j > 0 && first[order[j] + 1] - first[order[j]] > first[order[j - 1] + 1] - first[order[j - 1]]; j--) std::swap(order[j], order[j - 1]);
    m->rope(longest + 32);
    std::atomic<int> next(0);
    auto work = [&](int t) {
        Worker& w = m->workers[t];
        w.grads.need(m->size());
        memset(w.grads, 0, m->size() * 4);
        for (int i; (i = next++) < nseq;) {
            int s = order[i], f = sel_first[s];
            w.sequence(tokens + first[s], first[s + 1] - first[s], sel + f, target + f, weight + f, sel_first[s + 1] - f, loss + f, hit + f, grads != nullptr);
        }
    };
    std::vector<std::thread> pool;
    for (int t = 1; t < m->threads; t++) pool.emplace_back(work, t);
    work(0);
    for (auto& t : pool) t.join();
    if (grads) {
        memset(grads, 0, m->size() * 4);
        for (auto& w : m->workers) for (size_t i = 0; i < m->size(); i++) grads[i] += w.grads[i];
    }
}
}
