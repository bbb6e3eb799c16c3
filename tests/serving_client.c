/* Serves a SavedModel of gpflow_gam without Python: TensorFlow's C API only.
 *
 * usage: serving_client FOLDER NUMBER_INPUT TEXT_INPUT OUTPUT < rows
 *
 * Rows are "number text"; inputs and output are names of operations, as saved_model_cli shows them,
 * the output with its index ("StatefulPartitionedCall:2"). Prints a value a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#define MAX_ROWS 1000

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) {
    fprintf(stderr, "%s: %s\n", what, TF_Message(status));
    exit(1);
  }
}

static TF_Output find(TF_Graph *graph, const char *name) {
  char operation[256];
  TF_Output found;
  snprintf(operation, sizeof operation, "%s", name);
  char *colon = strrchr(operation, ':');
  found.index = colon ? atoi(colon + 1) : 0;
  if (colon) *colon = '\0';
  found.oper = TF_GraphOperationByName(graph, operation);
  if (!found.oper) {
    fprintf(stderr, "the graph has no operation %s\n", operation);
    exit(1);
  }
  return found;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s FOLDER NUMBER_INPUT TEXT_INPUT OUTPUT < rows\n", argv[0]);
    return 2;
  }
  static double numbers[MAX_ROWS];
  static char text[MAX_ROWS][64];
  int64_t rows = 0;
  while (rows < MAX_ROWS && scanf("%lf %63s", &numbers[rows], text[rows]) == 2) rows++;

  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(status, "loading");

  TF_Tensor *x = TF_AllocateTensor(TF_DOUBLE, &rows, 1, rows * sizeof(double));
  memcpy(TF_TensorData(x), numbers, rows * sizeof(double));
  TF_Tensor *g = TF_AllocateTensor(TF_STRING, &rows, 1, rows * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(g);
  for (int64_t i = 0; i < rows; i++) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], text[i], strlen(text[i]));
  }

  TF_Output inputs[] = {find(graph, argv[2]), find(graph, argv[3])};
  TF_Output output = find(graph, argv[4]);
  TF_Tensor *values[] = {x, g};
  TF_Tensor *result = NULL;
  TF_SessionRun(session, NULL, inputs, values, 2, &output, &result, 1, NULL, 0, NULL, status);
  check(status, "predicting");
  const double *found = TF_TensorData(result);
  for (int64_t i = 0; i < TF_Dim(result, 0); i++) printf("%.17g\n", found[i]);

  TF_DeleteTensor(result);
  TF_DeleteTensor(g);
  TF_DeleteTensor(x);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
