// SPDX-License-Identifier: Apache-2.0
/// llmtrain: the program's table of contents.
int main() { return 0; }
