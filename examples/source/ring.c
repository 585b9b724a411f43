/* A ring buffer of integers. */
#include <stddef.h>

struct queue {
    int *items;
    size_t first, count, capacity;
};

int push(struct queue *queue, int item) {
    if (queue->count == queue->capacity) {
        return 0;
    }
    queue->items[(queue->first + queue->count) % queue->capacity] = item;
    queue->count += 1;
    return 1;
}
