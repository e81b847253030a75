# The CPU addon: one static library of operators an instruction set (chosen at run time; nothing is built for the building machine
# alone), everything else in the module. Sources are globbed, so a new file needs no entry here.
{
  'variables': {
    'glob': '<(module_root_dir)/scripts/sources.mjs',
    'strict': '<!(node -p "+require(\'fs\').existsSync(\'.git\')")',  # -Werror in a clone, never in a user's installation
    'x86_avx2': ['-mavx2', '-mfma'],
    'x86_avx512': ['-mavx512f', '-mavx512dq', '-mavx512bw', '-mavx512vl', '-mavx2', '-mfma'],
  },
  'target_defaults': {
    # A worker that is terminated inside a call of ours cannot be thrown at any more: that is its end, and not the process's.
    'defines': ['NAPI_VERSION=9', 'NODE_ADDON_API_CPP_EXCEPTIONS_ALL', 'NODE_ADDON_API_DISABLE_DEPRECATED',
                'NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS'],
    'include_dirs': ['kernels'],
    'cflags!': ['-fno-exceptions', '-O2'],
    'cflags_cc!': ['-fno-exceptions', '-fno-rtti', '-std=gnu++17', '-std=gnu++20'],
    'cflags': ['-O3', '-ffp-contract=off', '-fno-math-errno', '-fvisibility=hidden', '-Wall', '-Wextra', '-pthread'],
    'cflags_cc': ['-std=c++20', '-fexceptions', '-fvisibility-inlines-hidden',
                  '-isystem <!(node -p "require(\'path\').dirname(require.resolve(\'node-addon-api\'))")'],
    'xcode_settings': {
      'CLANG_CXX_LANGUAGE_STANDARD': 'c++20',
      'GCC_ENABLE_CPP_EXCEPTIONS': 'YES',
      'GCC_ENABLE_CPP_RTTI': 'YES',
      'GCC_OPTIMIZATION_LEVEL': '3',
      'GCC_SYMBOLS_PRIVATE_EXTERN': 'YES',
      'MACOSX_DEPLOYMENT_TARGET': '12.0',
      'OTHER_CFLAGS': ['-ffp-contract=off', '-fno-math-errno', '-Wall', '-Wextra'],
    },
    'conditions': [
      ['strict==1', {'cflags': ['-Werror']}],
      ['OS=="mac"', {'include_dirs': ['<!(node -p "require(\'path\').dirname(require.resolve(\'node-addon-api\'))")']}],
    ],
  },
  'targets': [
    {
      'target_name': 'sinkflex',
      'sources': [
        '<!@(node <(glob) kernels/addon kernels/model kernels/memory kernels/os kernels/ops/dispatch)',
      ],
      # The order is the order of linking: of a template instance that several libraries hold, the portable copy is kept.
      'dependencies': ['ops_portable'],
      'conditions': [
        ['target_arch=="x64"', {'dependencies': ['ops_avx2', 'ops_avx512']}],
        ['target_arch=="arm64"', {'dependencies': ['ops_neon']}],
        ['OS=="linux"', {'libraries': ['-lpthread', '-ldl']}],
      ],
    },
    {
      'target_name': 'ops_portable',
      'type': 'static_library',
      'defines': ['SFX_ISA_PORTABLE'],
      'sources': ['<!@(node <(glob) kernels/ops)'],
    },
  ],
  'conditions': [
    ['target_arch=="x64"', {
      'targets': [
        {
          'target_name': 'ops_avx2',
          'type': 'static_library',
          'defines': ['SFX_ISA_AVX2'],
          'sources': ['<!@(node <(glob) kernels/ops)'],
          'cflags': ['<@(x86_avx2)'],
          'xcode_settings': {'OTHER_CFLAGS': ['<@(x86_avx2)']},
        },
        {
          'target_name': 'ops_avx512',
          'type': 'static_library',
          'defines': ['SFX_ISA_AVX512'],
          'sources': ['<!@(node <(glob) kernels/ops)'],
          'cflags': ['<@(x86_avx512)'],
          'xcode_settings': {'OTHER_CFLAGS': ['<@(x86_avx512)']},
        },
      ],
    }],
    ['target_arch=="arm64"', {
      'targets': [
        {
          'target_name': 'ops_neon',
          'type': 'static_library',
          'defines': ['SFX_ISA_NEON'],
          'sources': ['<!@(node <(glob) kernels/ops)'],
        },
      ],
    }],
  ],
}
