/** A stack of integers with a fixed capacity. */
class Stack {
    private final int[] items = new int[64];
    private int size = 0;

    boolean push(int item) {
        if (size == items.length) {
            return false;
        }
        items[size] = item;
        size += 1;
        return true;
    }
}
