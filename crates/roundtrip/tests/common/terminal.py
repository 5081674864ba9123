# Runs a program in a terminal of 80 columns and 24 lines, types the letters of the first argument half a second apart, and prints all that it
# drew, with its exit status at the end. Arguments: letters, program, its arguments.
import fcntl, os, pty, select, struct, sys, termios, time

letters, program = sys.argv[1], sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execv(program[0], program)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))


def draw(seconds):
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                sys.stdout.buffer.write(os.read(terminal, 65536))
            except OSError:
                return


draw(1.2)
for letter in letters:
    os.write(terminal, letter.encode())
    draw(0.5)
_, status = os.waitpid(child, 0)
sys.stdout.buffer.write(b"\nended %d\n" % status)
