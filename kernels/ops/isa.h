// Picks the namespace of one instruction set. Every .cpp here is compiled once an instruction set; nothing with vague
// linkage (inline functions or templates outside this namespace, std containers) may appear in them, or the linker
// could hand a machine without AVX-512 a function that uses it.
#ifndef SINKFLEX_OPS_ISA_H
#define SINKFLEX_OPS_ISA_H

#if defined(SFX_ISA_AVX512)
#define SFX_NS sfx_avx512
#define SFX_ISA_NAME "cpu-avx512"
#define SFX_ISA_TABLE sfx_table_avx512
#elif defined(SFX_ISA_AVX2)
#define SFX_NS sfx_avx2
#define SFX_ISA_NAME "cpu-avx2"
#define SFX_ISA_TABLE sfx_table_avx2
#elif defined(SFX_ISA_NEON)
#define SFX_NS sfx_neon
#define SFX_ISA_NAME "cpu-neon"
#define SFX_ISA_TABLE sfx_table_neon
#else
#define SFX_NS sfx_portable
#define SFX_ISA_NAME "cpu-portable"
#define SFX_ISA_TABLE sfx_table_portable
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 reports its own AVX-512 intrinsics (_mm512_undefined_ps) at every place they are inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define SFX_INLINE static inline __attribute__((always_inline))

#endif
