//! The kernel's filter: TCP over IPv4 or IPv6, to or from one port, or any (classic BPF, `tcp port N`, `tcp`).

/// One instruction; the fields are those of `struct sock_filter` (linux/filter.h).
pub(super) type Instruction = libc::sock_filter;

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code: code as u16, jt, jf, k }
}

/// Load half-word and byte at an absolute place, half-word relative to X; set X to an IPv4 header's length.
const LDH: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LDB: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LDH_X: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LDX_IHL: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const JEQ: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JSET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RET: u32 = libc::BPF_RET | libc::BPF_K;

/// The program; accepted packets are kept up to `snap` bytes. Port 0 is any.
pub(super) fn tcp_port(port: u16, snap: u32) -> [Instruction; 20] {
    // Where any port passes, the first comparison accepts either way.
    let other = |accept: u8| if port == 0 { accept } else { 0 };
    let port = port.into();
    [
        op(LDH, 12, 0, 0),
        op(JEQ, 0x86dd, 0, 6), // not IPv6: to 8
        op(LDB, 20, 0, 0),
        op(JEQ, 6, 0, 15), // not TCP: reject
        op(LDH, 54, 0, 0),
        op(JEQ, port, 12, other(12)), // source port: accept
        op(LDH, 56, 0, 0),
        op(JEQ, port, 10, 11),  // destination port: accept, else reject
        op(JEQ, 0x0800, 0, 10), // 8: not IPv4 either: reject
        op(LDB, 23, 0, 0),
        op(JEQ, 6, 0, 8), // not TCP: reject
        op(LDH, 20, 0, 0),
        op(JSET, 0x1fff, 6, 0), // a later fragment: reject
        op(LDX_IHL, 14, 0, 0),
        op(LDH_X, 14, 0, 0),
        op(JEQ, port, 2, other(2)), // source port: accept
        op(LDH_X, 16, 0, 0),
        op(JEQ, port, 0, 1), // destination port: accept, else reject
        op(RET, snap, 0, 0), // 18
        op(RET, 0, 0, 0),    // 19
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on a frame, as the kernel would.
    fn run(program: &[Instruction], frame: &[u8]) -> u32 {
        let half = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let (mut a, mut x, mut pc) = (0, 0, 0);
        loop {
            let i = program[pc];
            pc += 1;
            match u32::from(i.code) {
                LDH => a = half(i.k as usize),
                LDB => a = frame[i.k as usize].into(),
                LDH_X => a = half((i.k + x) as usize),
                LDX_IHL => x = u32::from(frame[i.k as usize] & 0xf) * 4,
                JEQ => pc += usize::from(if a == i.k { i.jt } else { i.jf }),
                JSET => pc += usize::from(if a & i.k != 0 { i.jt } else { i.jf }),
                RET => return i.k,
                code => panic!("{code:#x}"),
            }
        }
    }

    fn frame_v4(protocol: u8, options: usize, fragment: u16, ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + options + 20];
        frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
        frame[14] = 0x40 | ((20 + options) / 4) as u8;
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[23] = protocol;
        frame[34 + options..36 + options].copy_from_slice(&ports.0.to_be_bytes());
        frame[36 + options..38 + options].copy_from_slice(&ports.1.to_be_bytes());
        frame
    }

    #[test]
    fn port_0_is_any() {
        let program = tcp_port(0, 1000);
        let mut v6 = vec![0; 74];
        v6[12..14].copy_from_slice(&0x86dd_u16.to_be_bytes());
        v6[20] = 6;
        v6[54..58].copy_from_slice(&[1, 2, 3, 4]);
        for (frame, passes) in [
            (frame_v4(6, 0, 0, (80, 9)), true),
            (frame_v4(6, 8, 0, (40_000, 6379)), true),
            (frame_v4(17, 0, 0, (53, 9)), false),
            (frame_v4(6, 0, 5, (80, 9)), false),
            (v6, true),
        ] {
            assert_eq!(run(&program, &frame) == 1000, passes);
        }
    }

    #[test]
    fn only_tcp_of_the_port_passes() {
        let program = tcp_port(3260, 1000);
        for (frame, passes) in [
            (frame_v4(6, 0, 0, (3260, 9)), true),
            (frame_v4(6, 0, 0, (9, 3260)), true),
            (frame_v4(6, 8, 0, (9, 3260)), true),
            (frame_v4(6, 0, 0, (9, 9)), false),
            (frame_v4(17, 0, 0, (3260, 9)), false),
            (frame_v4(6, 0, 5, (3260, 9)), false),
        ] {
            assert_eq!(run(&program, &frame) == 1000, passes);
        }
        let mut v6 = vec![0; 74];
        v6[12..14].copy_from_slice(&0x86dd_u16.to_be_bytes());
        v6[20] = 6;
        v6[56..58].copy_from_slice(&3260_u16.to_be_bytes());
        assert_eq!(run(&program, &v6), 1000);
        v6[20] = 17;
        assert_eq!(run(&program, &v6), 0);
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&0x0806_u16.to_be_bytes());
        assert_eq!(run(&program, &arp), 0);
    }
}
