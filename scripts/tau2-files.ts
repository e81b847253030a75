// The files of tau2-bench that `sinkflex data tau2` fetches: paths under data/tau2 at one commit, and the sha256 of each.

export const TAU2_COMMIT = 'a2c024725189473d2d7cea3a5cfdbcc67478e41f';
export const TAU2_SOURCE = `https://raw.githubusercontent.com/sierra-research/tau2-bench/${TAU2_COMMIT}/data/tau2`;

export const TAU2_FILES: Readonly<Record<string, string>> = {
  'domains/retail/db.json': '413a65160adbdb5fde0ffc0015c49b6d70250b10c18128de169b597af7766765',
  'domains/retail/tasks.json': '8e03ebce7901bd6218e7a7dc3105faa9324091a68058f7fe61c65262868812e8',
  'domains/retail/policy.md': '2c9652afbce57d6e087768d37cda64d31c53d50b3e3225cfdb791bac66466467',
  'domains/retail/split_tasks.json': 'ed0580ec52575b63fbf76568af42490da6ee7783ecb4aa81af46961291358f20',
  'domains/airline/db.json': '1af9fea6e03ca7ca15a22bb3fcaf3e351393e3fc9070b6777947da8996f7531b',
  'domains/airline/tasks.json': 'ccd8ba737b4cc371415af70151187788f728d6108d0916e73bb4317b40542052',
  'domains/airline/policy.md': '10dc0525421521208be39cee235bba84a16e2bcba9899eb93d92cd81d2f62fc4',
  'domains/airline/split_tasks.json': 'b22ced4d9a9850ac9aea31c53bdcb6d6009058140bd9acc7db37c1d36222ba8b',
  'domains/telecom/db.toml': '562d647ef9d7df8df91eafd8ee76036e707c8f9e32aaedc4a7fde06975aea2c0',
  'domains/telecom/user_db.toml': '4886107ea0c16f8e16d74bef91cfb557de61822afe9361f5a9b241806aea2e4c',
  'domains/telecom/tasks.json': '37e562e1ae3242577407e1303b1548bc64e7ea68e37d36173e6747990ceaf8a4',
  'domains/telecom/split_tasks.json': '605b488bb9a6acb3c7f4505240a855fdc8681d09aadb16a8f38b2efcfc5c3aec',
  'domains/telecom/main_policy.md': '95943844a0cf11fdf0e2842b483b81d9f9338aa53235712ed131db075d086ed7',
  'domains/telecom/main_policy_solo.md': '781296ae5419169cb64aac0c4fa2aa6129c78f3c1592f64abd80df6fbabb7042',
  'domains/telecom/tech_support_manual.md': '015a3ee49ec8c199c5e1a059c922081937b92cf3a5ea74fedbc4357816f389ba',
  'domains/telecom/tech_support_workflow.md': '64f3ccd13875d14f358b21b9af221dab09e0e7bf5690d0e4322fb91855a43a4d',
  'domains/telecom/tech_support_workflow_solo.md': 'b174d1f9705b5d7df49468daf99560a5633f86d23e10499a1166a7753706a412',
  'domains/mock/db.json': '8661f80b4c693bb15ef2fe6781d24a5765240d61fc74387c770133953f9113ea',
  'domains/mock/user_db.json': '78d424b5177e430b7f483787a956ad3a6a0880e8e5b312be8e373b15c876d51f',
  'domains/mock/tasks.json': '0d8bcd14798bf2e6e082432147f62570c57b0897b4e4e388c95bb02ecbe5d8cf',
  'domains/mock/split_tasks.json': '613c3298e6fd3cf03f71f848ecee519068eb4df54a1ceb28596f5aa443ee6581',
  'domains/mock/policy.md': '50ccbefac7c9ba77ce54131d61cfc6882f74b88ace66771115f9d867ec098203',
  'domains/mock/policy_solo.md': '2608375977bdeedd9cf34ab437b213403c8e97e9929d5094338355a994ac0c86',
  'user_simulator/simulation_guidelines.md': '740a29dfa64d7bc08eea3bf7493575b914a63f744acbaf7f199ee07eddaf72d3',
  'user_simulator/simulation_guidelines_tools.md': 'cbf3d8a4d8642fd04e559862f1afef55d7dd4e6a7e727ca49e239023c599de0c',
};
