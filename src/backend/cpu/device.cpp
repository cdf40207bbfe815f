namespace llmtrain { const int cpu_placeholder = 0; }
