/* v_csv.h -- schedules in a V as torch.distributed.pipelining dumps them: two workers, four
 * micro-batches, idle slots empty. Written from the rules of the schedules. */
#ifndef FR_TEST_V_CSV_H
#define FR_TEST_V_CSV_H

static const char zbv_csv[] =
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,"
    "0W3,\r\n"
    ",1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,"
    "1W3\r\n";

static const char dualpipev_csv[] =
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
    "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3\r\n"
    ",1F0,2F0,1F1,2F1,(1F2;2B0)OVERLAP_F_B,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
    "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3\r\n";

/* Two micro-batches: computation only, and with everything that PyTorch adds before a run: posted
 * receives, waits for sends, sharded weights, reductions. */
static const char zbv_two_csv[] = "0F0,0F1,,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1\r\n"
                                  ",1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1\r\n";

static const char zbv_lowered_csv[] =
    "0UNSHARD,3UNSHARD,0F0,0SEND_F0,3RECV_F0,0F1,0SEND_F1,3RECV_F1,3F0,3I0,3SEND_B0,3W0,0RECV_B0,"
    "3F1,3I1,3SEND_B1,3W1,3REDUCE_GRAD,0RECV_B1,3WAIT_REDUCE_GRAD,3RESHARD,0I0,0WAIT_SEND_F0,0W0,"
    "0I1,0WAIT_SEND_F1,0W1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD,3WAIT_SEND_B0,3WAIT_SEND_B1\r\n"
    "1UNSHARD,2UNSHARD,1RECV_F0,1F0,1RECV_F1,2F0,2SEND_F0,1F1,2F1,2SEND_F1,2RECV_B0,2I0,"
    "2WAIT_SEND_F0,2W0,1I0,1SEND_B0,2RECV_B1,1W0,2I1,2WAIT_SEND_F1,2W1,2REDUCE_GRAD,1I1,1SEND_B1,"
    "2WAIT_REDUCE_GRAD,2RESHARD,1W1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,"
    "1WAIT_SEND_B1\r\n";

#endif
