"""Remote management [MS-MQMR]: what MMC and MSMQManagement read and do from afar."""
